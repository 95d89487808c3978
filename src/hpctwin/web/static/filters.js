// Which jobs the tables show: by what is chosen in a form, and in the address.

import { choose, chosen } from "./address.js";
import { element } from "./words.js";

const SECONDS = { s: 1, min: 60, m: 60, h: 3600, d: 86400 };
const EXACT = ["user", "account", "partition", "qos"];

/** "turn" and the like for a pending job. */
export function stateOf(job) {
  return job.state === "running" ? "running" : job.reason;
}

export class Filters {
  /** @param form fields by the names of the address. @param said element that says what is wrong.
   * @param changed called after a choice. */
  constructor(form, said, changed) {
    this.form = form;
    this.said = said;
    this.fields = [...form.elements].filter((one) => one.name);
    this.known = {};
    for (const field of this.fields) this.put(field, chosen(field.name));
    const take = () => {
      choose(Object.fromEntries(this.fields.map(({ name, value }) => [name, value.trim()])));
      this.read();
      changed();
    };
    form.addEventListener("input", take);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(take));
    this.read();
  }

  put(field, value) {
    if (value && field.options && ![...field.options].some((one) => one.value === value)) field.append(element("option", value, { value }));
    field.value = value;
  }

  /** Chooses these values, by their names. */
  only(values) {
    for (const field of this.fields) if (field.name in values) this.put(field, values[field.name]);
    this.form.dispatchEvent(new Event("input"));
  }

  read() {
    const value = (name) => this.form.elements[name].value.trim();
    const wrong = [];
    const between = (name, parse, open) => {
      try {
        return range(value(name), parse, open);
      } catch (error) {
        wrong.push(`${name}: ${error.message}`);
        return null;
      } finally {
        this.form.elements[name].setAttribute("aria-invalid", String(wrong.some((one) => one.startsWith(`${name}:`))));
      }
    };
    this.find = value("find").toLowerCase();
    this.exact = EXACT.filter(value).map((name) => [name, new Set(value(name).split(","))]);
    this.state = value("state");
    this.nodes = between("nodes", number);
    this.wait = between("wait", duration, true);
    this.said.textContent = wrong.join("; ");
    this.count = this.fields.filter((one) => one.value.trim()).length;
    const count = this.form.querySelector(".count");
    count.textContent = this.count ? ` (${this.count})` : "";
    this.form.querySelector("[type=reset]").hidden = !this.count;
  }

  /** @param job its wait is in `wait_s`. */
  passes(job) {
    const state = stateOf(job);
    return (!this.find || [job.id, job.user, job.account, job.partition, job.qos].some((text) => text.toLowerCase().includes(this.find)))
      && this.exact.every(([name, values]) => values.has(job[name]))
      && (!this.state || this.state === state || (this.state === "pending" && state !== "running"))
      && inside(job.nodes, this.nodes) && inside(job.wait_s, this.wait);
  }

  /** What can be chosen: what the jobs have. */
  offer(jobs) {
    for (const name of [...EXACT, "state"]) {
      const field = this.form.elements[name];
      const found = new Set(name === "state" ? ["pending", "running"] : []);
      for (const job of jobs) found.add(name === "state" ? stateOf(job) : job[name]);
      found.delete("");
      const texts = [...found].sort(), known = texts.join("\n");
      field.parentElement.hidden = !texts.length && !field.value;
      if (known === this.known[name] || field === document.activeElement) continue;
      this.known[name] = known;
      const { value } = field;
      field.replaceChildren(element("option", "any", { value: "" }), ...texts.map((text) => element("option", text, { value: text })));
      this.put(field, value);
    }
  }
}

function inside(value, limits) {
  return !limits || (value >= limits[0] && value <= limits[1]);
}

/** "4-16", ">=4", "<16" or "8" as the least and the most; null of nothing.
 * @param open whether a value alone is the least. */
export function range(text, parse, open = false) {
  if (!text) return null;
  const [, sign, single] = text.match(/^([<>]=?)\s*(.+)$/) ?? [];
  if (sign) {
    const value = parse(single), above = sign.startsWith(">"), without = sign.endsWith("=") ? 0 : 1e-6;
    return above ? [value + without, Infinity] : [-Infinity, value - without];
  }
  const [low, high] = text.split(/\s*(?:-|–|\.\.)\s*/);
  return [low === "" ? -Infinity : parse(low), high === undefined && !open ? parse(low) : high ? parse(high) : Infinity];
}

function number(text) {
  if (!/^\d+$/.test(text)) throw new Error("write 8, 4-16, >4 or <16");
  return Number(text);
}

function duration(text) {
  const [, value, unit] = text.match(/^(\d+(?:\.\d+)?)\s*(s|min|m|h|d)$/) ?? [];
  if (!unit) throw new Error("write >1h, <30min or 1h-2d");
  return Number(value) * SECONDS[unit];
}
