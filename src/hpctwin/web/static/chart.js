// A chart of a few values over time, with gaps where nothing is known, read by pointer or keyboard.

import { axis, levels, placed, scale } from "./boxes.js";
import { amount } from "./lines.js";
import { clock } from "./clock.js";
import { COLOURS } from "./colours.js";
import { element, prepared, span, theme } from "./words.js";

const AXIS = 22, KEY = 18, MOST = 300;
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2], [1, 2]];

/** At most MOST periods: some neighbors are joined if there are more. */
function joined(edges, series) {
  const by = Math.ceil((edges.length - 1) / MOST);
  const parts = Array.from({ length: Math.ceil((edges.length - 1) / by) }, (_, i) => i * by);
  const join = (values, most) => {
    const known = values.filter((one) => one !== null);
    if (!known.length) return null;
    return most ? Math.max(...known) : known.reduce((sum, one) => sum + one, 0) / known.length;
  };
  return {
    edges: [...parts.map((i) => edges[i]), edges.at(-1)],
    series: series.map(({ name, values, most }) => ({ name, values: parts.map((i) => join(values.slice(i, i + by), most)) })),
  };
}

export class Chart {
  /** @param title what is drawn. @param unit "s" for durations. */
  constructor(title, unit = "") {
    Object.assign(this, { title, unit, edges: [0, 1], series: [], at: null });
    this.canvas = element("canvas", "", { tabindex: "0", role: "img", class: "chart" });
    this.said = element("p", "", { class: "said", "aria-live": "polite" });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.read(this.at === null ? 0 : this.at + step);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const time = this.edges[0] + (event.offsetX / this.canvas.clientWidth) * (this.edges.at(-1) - this.edges[0]);
      this.read(Math.max(0, this.edges.findLastIndex((edge) => edge <= time)));
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** @param edges begins of the periods, and the end of the last.
   * @param series names and values, null if unknown; `most`: periods are joined by their maximum, not their mean. */
  set(edges, series) {
    Object.assign(this, joined(edges, series));
    const known = series.flatMap(({ values }) => values.filter((one) => one !== null));
    this.known = known.length > 0;
    this.high = Math.max(...known, 0) || 1;
    this.label = this.known ? `${this.title}: up to ${this.text(this.high)}` : `${this.title}: nothing is recorded`;
    this.canvas.setAttribute("aria-label", this.label);
    this.draw();
  }

  text(value) {
    if (value === null || value === undefined) return "unknown";
    return this.unit === "s" ? span(value) : this.unit === "%" ? `${Math.round(100 * value)} %` : amount(value, this.unit);
  }

  read(at) {
    this.at = Math.max(0, Math.min(this.edges.length - 2, at));
    const told = this.series.map(({ name, values }) => `${name} ${this.text(values[this.at])}`);
    this.said.textContent = `${clock(this.edges[this.at])}: ${told.join(", ")}.`;
    this.draw();
  }

  draw() {
    const { context, width, height } = prepared(this.canvas), colours = theme();
    const { edges, series } = this, from = edges[0], to = edges.at(-1), deep = height - AXIS;
    context.font = "12px system-ui, sans-serif";
    const keys = this.known && series.length > 1 ? placed(context, series.map(({ name }) => name), width) : [];
    const top = KEY + 18 + (keys.at(-1)?.y ?? 0);
    const x = (time) => ((time - from) / (to - from)) * width;
    const y = (value) => top + (1 - value / this.high) * (deep - top);
    context.fillStyle = colours.text;
    context.fillText(this.label, 4, 12);
    series.forEach(({ name, values }, k) => {
      context.strokeStyle = COLOURS[k % COLOURS.length];
      context.lineWidth = 1.8;
      context.setLineDash(DASHES[k % DASHES.length]);
      context.beginPath();
      let drawn = false;
      values.forEach((value, i) => {
        if (value === null) {
          drawn = false;
          return;
        }
        if (drawn) context.lineTo(x(edges[i]), y(value));
        else context.moveTo(x(edges[i]), y(value));
        context.lineTo(x(edges[i + 1]), y(value));
        drawn = true;
      });
      if (keys.length) {
        const left = keys[k].x, down = KEY + keys[k].y;
        context.moveTo(left, down + 4);
        context.lineTo(left + 18, down + 4);
        context.fillText(name, left + 22, down + 8);
      }
      context.stroke();
    });
    context.setLineDash([]);
    if (this.at !== null) {
      context.fillStyle = colours.text;
      context.fillRect(x((edges[this.at] + edges[this.at + 1]) / 2) - 0.5, top, 1, deep - top);
    }
    if (this.known) scale(context, levels(0, this.high, deep - top, this.unit), (value) => this.text(value), y, top, width, colours);
    axis(context, from, to, width, deep, colours);
  }
}
