// A table of up to hundreds of thousands of rows that change all the time. Only rows in view are in
// the page. Each row keeps its element while it is shown, so focus and selected text stay. The
// table is one tab stop; arrow keys move within it.

import { choose, chosen } from "./address.js";
import { element, visible } from "./words.js";

const STILL = 4000, SPARE = 6, ROW = 30;
const collator = new Intl.Collator(undefined, { numeric: true });

export class Table {
  /** @param place element that the table is put into.
   * @param options `label`; `columns` as of `setColumns`; `key(row)`: what stays the same about a row;
   *   `name`: before its choices in the address; `sort`: column, with "-" before it if descending;
   *   `kind`: class for the style; `mark(row)`: class of a row; `empty`: what is said if there is none;
   *   `sorted()`: called after a person has sorted. */
  constructor(place, { label, columns = [], key, name = "", sort = "", kind = "", mark = null, empty = "No rows.", sorted = null }) {
    Object.assign(this, { key, name, mark, label, empty, usual: sort, hasSorted: sorted });
    this.latest = new Map();
    this.rows = this.latest;
    this.order = [];
    this.shown = new Map();
    this.active = { key: null, column: "" };
    this.at = -1;
    this.tab = null;
    this.moving = false;
    this.rowHeight = ROW;
    this.resized = true;
    this.view = element("div", "", { class: "view" });
    this.table = element("table", "", { role: "grid", class: `rows ${kind}`, "aria-label": label });
    this.head = element("tr", "", { role: "row", "aria-rowindex": "1" });
    this.body = element("tbody", "", { role: "rowgroup" });
    this.bar = element("div", "", { class: "bar" });
    this.count = element("span", "", { class: "count" });
    this.note = element("span", "Order held while the pointer moves", { class: "held", "aria-hidden": "true" });
    this.none = element("p", "Loading …", { class: "none" });
    const top = element("thead", "", { role: "rowgroup" });
    top.append(this.head);
    this.table.append(top, this.body);
    this.view.append(this.table);
    place.replaceChildren(this.bar, this.view, this.none);
    this.sort = chosen(`${name}sort`) || sort;
    this.setColumns(columns);
    this.listen();
  }

  /** @param columns `id`, `title`, `value(row)` to sort by and to export; if it differs, `text(row)`;
   *   `width` for the style; `number`: to the right; `extra`: not shown at first; `optional`: not shown
   *   before a row has a value; `open(row)`: its text is a button that calls this; `link(row)`: address of its text. */
  setColumns(columns) {
    this.columns = columns;
    this.filled = new Set();
    const wanted = chosen(`${this.name}columns`).split(",").filter((id) => columns.some((one) => one.id === id));
    this.chosen = wanted.length > 0;
    this.seen = new Set(this.chosen ? wanted : this.usualColumns);
    if (!columns.some(({ id }) => id === this.sort.replace("-", ""))) this.sort = this.usual;
    this.build();
  }

  get visible() {
    return this.columns.filter(({ id }) => this.seen.has(id));
  }

  /** Ids of the columns that are shown as long as a person chooses no others. */
  get usualColumns() {
    return this.columns.filter(({ id, extra, optional }) => !extra && (!optional || this.filled.has(id))).map(({ id }) => id);
  }

  /** Shows optional columns from the first row on that has a value; they stay. */
  showFilled(rows) {
    const found = this.columns.filter((one) => one.optional && !this.filled.has(one.id) && rows.some((row) => (one.value(row) ?? "") !== ""));
    if (!found.length) return;
    for (const { id } of found) this.filled.add(id);
    if (this.chosen) return;
    this.seen = new Set(this.usualColumns);
    this.build();
  }

  /** The head, and what chooses columns; rows are made again. */
  build() {
    const visible = this.visible;
    this.active.column = visible[0]?.id ?? "";
    this.table.style.setProperty("--columns", visible.map(({ width }) => width ?? "minmax(7ch, 1fr)").join(" "));
    this.head.replaceChildren(...visible.map((column) => {
      const cell = element("th", "", { role: "columnheader", scope: "col", class: column.number ? "n" : "", "data-column": column.id });
      const button = element("button", column.title, { type: "button", tabindex: "-1" });
      button.addEventListener("click", () => this.sortBy(this.sort === column.id ? `-${column.id}` : column.id));
      cell.append(button);
      return cell;
    }));
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
    this.buildBar();
    this.marks();
    this.arrange(true);
  }

  buildBar() {
    this.bar.hidden = !this.columns.length;
    const open = this.bar.querySelector("details")?.open;
    const choice = element("details", "", { class: "columns" }), list = element("div", "", { role: "group", "aria-label": `Columns of ${this.label}` });
    choice.open = Boolean(open);
    for (const column of this.columns) {
      const label = element("label"), box = element("input", "", { type: "checkbox", name: column.id });
      box.checked = this.seen.has(column.id);
      box.disabled = box.checked && this.seen.size === 1;
      box.addEventListener("change", () => {
        if (!this.seen.delete(column.id)) this.seen.add(column.id);
        const ids = this.visible.map(({ id }) => id).join();
        this.chosen = ids !== this.usualColumns.join();
        choose({ [`${this.name}columns`]: this.chosen ? ids : "" });
        this.build();
        this.bar.querySelector(`input[name="${column.id}"]`).focus();
      });
      label.append(box, ` ${column.title}`);
      list.append(label);
    }
    choice.append(element("summary", "Columns"), list);
    this.orderBy = element("select", "", { "aria-label": `Sort ${this.label} by` });
    if (!this.usual) this.orderBy.append(element("option", "As given", { value: "" }));
    for (const { id, title } of this.columns) {
      this.orderBy.append(element("option", `${title} ▲`, { value: id }), element("option", `${title} ▼`, { value: `-${id}` }));
    }
    this.orderBy.addEventListener("change", () => this.sortBy(this.orderBy.value));
    const save = element("button", "CSV", { type: "button", "aria-label": `Save ${this.label} as CSV` });
    save.addEventListener("click", () => this.save());
    this.bar.replaceChildren(this.count, this.note, this.orderBy, choice, save);
  }

  sortBy(sort) {
    this.sort = sort;
    choose({ [`${this.name}sort`]: sort === this.usual ? "" : sort });
    this.marks();
    this.arrange(true);
    this.hasSorted?.();
  }

  /** Which column the rows are sorted by. */
  marks() {
    const by = this.sort.replace("-", ""), down = this.sort.startsWith("-");
    for (const cell of this.head.children) {
      const mine = cell.dataset.column === by;
      if (mine) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      cell.firstChild.dataset.mark = mine ? (down ? "▼" : "▲") : "";
    }
    this.orderBy.value = this.sort;
  }

  /** @param rows those that pass the filters. @param asked whether a person has changed a filter. */
  set(rows, asked = false) {
    this.latest = new Map(rows.map((row) => [this.key(row), row]));
    this.none.textContent = this.empty;
    this.showFilled(rows);
    this.arrange(asked);
  }

  /** Puts the rows in order. While the pointer moves over them they stay: ended rows where they are,
   * and new ones come last. */
  arrange(asked = false) {
    this.stale = this.moving && !asked;
    if (this.stale) {
      this.rows = new Map(this.order.map((key) => [key, this.latest.get(key) ?? this.rows.get(key)]));
      for (const [key, row] of this.latest) this.rows.set(key, row);
      this.order = [...this.rows.keys()];
    } else {
      this.rows = this.latest;
      this.order = this.sorted();
    }
    this.note.hidden = !this.stale;
    this.none.hidden = this.order.length > 0;
    this.table.setAttribute("aria-rowcount", String(this.order.length + 1));
    this.body.style.height = `${this.order.length * this.rowHeight}px`;
    this.keepActive();
    this.draw();
  }

  sorted() {
    const column = this.columns.find(({ id }) => id === this.sort.replace("-", ""));
    const keys = [...this.latest.keys()];
    if (!column) return keys;
    const sign = this.sort.startsWith("-") ? -1 : 1, values = [...this.latest.values()].map((row) => column.value(row));
    const known = [], unknown = [];
    values.forEach((value, i) => (value === null || value === undefined || value === "" ? unknown : known).push(i));
    const order = ranks(values, known);
    known.sort((a, b) => sign * (order[a] - order[b]) || a - b);
    return [...known, ...unknown].map((i) => keys[i]);
  }

  /** The view follows the row with the focus; if that has left, the focus goes to the row in its place. */
  keepActive() {
    const { key } = this.active, focused = this.body.contains(document.activeElement);
    const now = key === null ? -1 : this.order.indexOf(key);
    if (key !== null && now < 0) {
      this.at = Math.min(this.at, this.order.length - 1);
      this.active.key = this.order[this.at] ?? null;
      this.refocus = focused;
      return;
    }
    const top = this.at * this.rowHeight - this.view.scrollTop;
    if (focused && now !== this.at && top > -this.rowHeight && top < this.view.clientHeight) {
      this.view.scrollTop += (now - this.at) * this.rowHeight;
    }
    this.at = now;
  }

  draw() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      this.paint();
    });
  }

  /** Makes the rows in view, and those with the focus or selected text. */
  paint() {
    const { scrollTop, clientHeight } = this.view;
    if (!clientHeight) return;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - SPARE);
    const last = Math.min(this.order.length, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + SPARE);
    const wanted = new Map();
    for (let i = first; i < last; i += 1) wanted.set(this.order[i], i);
    const selected = this.selected();
    for (const key of [this.active.key, ...selected]) {
      const i = wanted.has(key) || key === null ? -1 : this.order.indexOf(key);
      if (i >= 0) wanted.set(key, i);
    }
    const spare = [];
    for (const [key, row] of this.shown) {
      if (wanted.has(key)) continue;
      spare.push(row);
      this.shown.delete(key);
    }
    for (const [key, i] of wanted) {
      if (!this.shown.has(key)) this.shown.set(key, spare.pop() ?? this.body.appendChild(this.make()));
      this.fill(key, i);
    }
    for (const row of spare) row.remove();
    if (!selected.length) this.align([...wanted].sort((a, b) => a[1] - b[1]).map(([key]) => this.shown.get(key)));
    this.measure();
    this.stop();
    if (this.refocus) this.tab?.focus({ preventScroll: true });
    this.refocus = false;
  }

  /** Keys of the rows at both ends of the selected text. */
  selected() {
    const selection = getSelection();
    if (!selection || selection.isCollapsed) return [];
    const rows = [selection.anchorNode, selection.focusNode].filter((node) => this.body.contains(node))
      .map((node) => (node.closest ? node : node.parentElement).closest("tr"));
    return rows.filter(Boolean).map((row) => row.key);
  }

  /** Makes a row, or changes what is different about it. */
  fill(key, i) {
    const data = this.rows.get(key), row = this.shown.get(key);
    row.key = key;
    row.style.top = `${i * this.rowHeight}px`;
    row.setAttribute("aria-rowindex", String(i + 2));
    row.className = [this.mark?.(data) ?? "", this.latest.has(key) ? "" : "ended", i % 2 ? "odd" : ""].filter(Boolean).join(" ");
    this.visible.forEach((column, k) => {
      const text = visible(column.text ? column.text(data) : String(column.value(data) ?? ""));
      const inside = target(row.children[k]);
      if (inside.firstChild.data !== text) {
        inside.firstChild.data = text;
        row.children[k].title = text;
      }
      if (column.link && text) inside.href = column.link(data);
      else if (column.link) inside.removeAttribute("href");
    });
  }

  make() {
    const row = element("tr", "", { role: "row" });
    this.visible.forEach((column, k) => {
      const cell = element(k ? "td" : "th", "", { role: k ? "gridcell" : "rowheader", class: column.number ? "n" : "", "data-column": column.id, "data-title": column.title });
      const inside = column.open ? element("button", "", { type: "button" }) : column.link ? element("a") : cell;
      inside.append("");
      inside.tabIndex = -1;
      if (inside !== cell) cell.append(inside);
      row.append(cell);
    });
    return row;
  }

  /** The order of the elements is that of the rows, for screen readers; the row with the focus never moves. */
  align(rows) {
    if (rows.every((row, i) => this.body.children[i] === row)) return;
    const kept = rows.find((row) => row.contains(document.activeElement));
    const at = rows.indexOf(kept);
    if (kept) kept.before(...rows.slice(0, at));
    if (kept) kept.after(...rows.slice(at + 1));
    else this.body.append(...rows);
  }

  /** How high a row is, by the style. */
  measure() {
    if (!this.resized || !this.body.firstChild) return;
    this.resized = false;
    const high = this.body.firstChild.offsetHeight || this.rowHeight;
    if (high === this.rowHeight) return;
    this.view.scrollTop *= high / this.rowHeight;
    this.rowHeight = high;
    this.body.style.height = `${this.order.length * high}px`;
    this.draw();
  }

  /** Makes the active cell the table's one tab stop. */
  stop() {
    const headless = !this.head.offsetHeight;
    if (this.active.key === null && headless && this.order.length) this.active.key = this.order[this.at = 0];
    const row = this.active.key === null ? this.head : this.shown.get(this.active.key);
    const cell = [...(row?.children ?? [])].find((one) => one.dataset.column === this.active.column) ?? row?.firstChild;
    const next = cell ? target(cell) : null;
    if (next === this.tab) return;
    if (this.tab) this.tab.tabIndex = -1;
    if (next) next.tabIndex = 0;
    this.tab = next;
  }

  listen() {
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => {
      this.resized = true;
      this.draw();
    }).observe(this.view);
    this.table.addEventListener("keydown", (event) => this.press(event));
    this.table.addEventListener("focusin", (event) => {
      const cell = event.target.closest("th, td"), key = cell?.parentElement.key ?? null;
      if (!cell) return;
      this.active = { key, column: cell.dataset.column };
      this.at = key === null ? -1 : this.order.indexOf(key);
      this.stop();
    });
    this.body.addEventListener("click", (event) => {
      const cell = event.target.closest("button")?.parentElement;
      if (cell) this.columns.find(({ id }) => id === cell.dataset.column).open(this.rows.get(cell.parentElement.key));
    });
    const release = () => {
      clearTimeout(this.rest);
      this.moving = false;
      if (this.stale) this.arrange();
    };
    const hold = (event) => {
      if (event.pointerType === "touch") return;
      this.moving = true;
      clearTimeout(this.rest);
      this.rest = setTimeout(release, STILL);
    };
    this.body.addEventListener("pointermove", hold);
    this.body.addEventListener("wheel", hold, { passive: true });
    this.body.addEventListener("pointerleave", release);
  }

  press(event) {
    const visible = this.visible, last = this.order.length - 1, page = Math.max(1, Math.floor(this.view.clientHeight / this.rowHeight) - 2);
    const column = visible.findIndex(({ id }) => id === this.active.column), ends = event.ctrlKey ? [-last - 1, last + 1] : [0, 0];
    const steps = {
      ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0],
      Home: [ends[0], -visible.length], End: [ends[1], visible.length],
    };
    if (!(event.key in steps) || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [down, right] = steps[event.key], least = this.head.offsetHeight ? -1 : 0;
    this.at = Math.max(Math.min(least, last), Math.min(last, this.at + down));
    this.active = { key: this.at < 0 ? null : this.order[this.at], column: visible[Math.max(0, Math.min(visible.length - 1, column + right))].id };
    this.paint();
    this.tab?.focus();
  }

  /** What the table holds now, sorted, with the columns that are shown. */
  csv() {
    const visible = this.visible;
    return [visible.map(({ id }) => id), ...this.order.map((key) => visible.map((column) => column.value(this.rows.get(key))))]
      .map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
  }

  save() {
    const link = element("a", "", { href: URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })), download: `${this.label.toLowerCase().replaceAll(" ", "-")}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}

/** Values as numbers in the same order: themselves if they are numbers, else their place among all. */
function ranks(values, known) {
  if (known.every((i) => typeof values[i] === "number" || /^\d{1,15}$/.test(values[i]))) return values.map(Number);
  const sorted = [...new Set(known.map((i) => values[i]))].sort(collator.compare);
  const place = new Map(sorted.map((value, i) => [value, i]));
  return values.map((value) => place.get(value));
}

/** What of a cell has the focus: the button or link in it, else the cell. */
function target(cell) {
  return cell.querySelector("button, a") ?? cell;
}

/** A value of a CSV file. A name that a spreadsheet would compute is marked as text. */
function quoted(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
