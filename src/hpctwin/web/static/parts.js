// Sections, tables and pairs that pages are made of.

import { element } from "./words.js";

export function section(title, ...content) {
  const id = `h-${title.toLowerCase().replaceAll(/\W+/g, "-")}`, made = element("section", "", { class: "wide", "aria-labelledby": id });
  made.append(element("h2", title, { id }), ...content);
  return made;
}

/** @param pairs names and values: texts or elements. */
export function facts(pairs) {
  const made = element("dl", "", { class: "figures" });
  for (const [name, value] of pairs) {
    const pair = element("div"), dd = element("dd", typeof value === "object" ? "" : value);
    if (typeof value === "object") dd.append(value);
    pair.append(element("dt", name), dd);
    made.append(pair);
  }
  return made;
}

const NONE = "–", MOST_NARROW = 3;

/** A table without the columns that have no value in any row; a phone shows its rows as cards.
 * @param heads titles of the columns. @param rows texts or elements. @param numbers titles of the columns to the right. */
export function table(caption, heads, rows, numbers = []) {
  if (!rows.length) return element("p", `${caption}: none.`);
  // The roles stay when a style sheet lays the rows out as cards.
  const made = element("table", "", { role: "table" }), head = element("tr", "", { role: "row" }), thead = element("thead", "", { role: "rowgroup" }), body = element("tbody", "", { role: "rowgroup" });
  const filled = heads.map((_, i) => rows.some((cells) => (cells[i]?.textContent ?? cells[i]) !== NONE));
  const kept = (cells) => cells.filter((_, i) => filled[i]), style = heads.map((text) => ({ class: numbers.includes(text) ? "n" : "" }));
  if (filled.filter(Boolean).length > MOST_NARROW) made.className = "cards";
  head.append(...kept(heads.map((text, i) => element("th", text, { scope: "col", role: "columnheader", ...style[i] }))));
  thead.append(head);
  body.append(...rows.map((cells) => {
    const row = element("tr", "", { role: "row" });
    row.append(...kept(cells.map((cell, i) => {
      const made = element("td", typeof cell === "object" ? "" : cell, { role: "cell", "data-title": heads[i], ...style[i] });
      if (typeof cell === "object") made.append(cell);
      return made;
    })));
    return row;
  }));
  made.append(element("caption", caption), thead, body);
  const scroll = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
  scroll.append(made);
  return scroll;
}
