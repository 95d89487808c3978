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

/** @param words number of columns of words at the left; the others are numbers. */
export function table(caption, heads, rows, words = heads.length) {
  if (!rows.length) return element("p", `${caption}: none.`);
  const made = element("table"), head = element("tr"), thead = element("thead"), body = element("tbody");
  head.append(...heads.map((text, i) => element("th", text, { scope: "col", class: i < words ? "" : "n" })));
  thead.append(head);
  body.append(...rows.map((cells) => {
    const row = element("tr");
    row.append(...cells.map((cell, i) => {
      const made = element("td", typeof cell === "object" ? "" : cell, { class: i < words ? "" : "n" });
      if (typeof cell === "object") made.append(cell);
      return made;
    }));
    return row;
  }));
  made.append(element("caption", caption), thead, body);
  const scroll = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
  scroll.append(made);
  return scroll;
}
