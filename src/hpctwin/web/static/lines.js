// Metrics over time: one chart, with a choice of what it shows; the mean as a line, the peak as an area behind it.

import { axis, levels, scale } from "./boxes.js";
import { clock } from "./clock.js";
import { element, number, prepared, replace, theme } from "./words.js";

const AXIS = 22, TOP = 16;

export class Lines {
  /** @param place element that the chart and the choice are put into. @param said element that tells the values at the
   * cursor. */
  constructor(place, said) {
    this.said = said;
    this.lines = [];
    this.bin = null;
    this.chosen = null;
    this.choice = element("div", "", { class: "switch", role: "radiogroup", "aria-label": "Shown metric" });
    this.edges = [0, 1];
    this.canvas = element("canvas", "", { tabindex: "0", role: "img", class: "line", "aria-label": "Metrics over time" });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.read(Math.floor((event.offsetX / this.canvas.clientWidth) * (this.edges.length - 1))));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    place.replaceChildren(this.choice, this.canvas);
  }

  /** @param told edges of the bins, and lines; see LinesView. */
  set(told) {
    this.edges = told.edges_s;
    this.now = told.now_s;
    const names = told.lines.map(({ name }) => name);
    if (names.join() !== this.lines.map(({ name }) => name).join()) this.offer(names);
    this.lines = told.lines;
    if (this.line) {
      const { name, mean, peak, unit } = this.line, over = mean.reduce((sum, one) => sum + one, 0) / Math.max(1, mean.length);
      this.canvas.setAttribute("aria-label", `${name}: ${amount(over, unit)} on average, ${amount(Math.max(...peak, 0), unit)} at most`);
    }
    this.draw();
  }

  /** The line that is shown. */
  get line() {
    return this.lines.find(({ name }) => name === this.chosen) ?? this.lines[0];
  }

  offer(names) {
    if (!names.includes(this.chosen)) this.chosen = names[0];
    replace(this.choice, names.map((name) => {
      const label = element("label"), button = element("input", "", { type: "radio", name: "line", value: name });
      button.checked = name === this.chosen;
      button.addEventListener("change", () => {
        this.chosen = name;
        this.set({ edges_s: this.edges, now_s: this.now, lines: this.lines });
      });
      label.append(button, name);
      return label;
    }));
    this.choice.hidden = names.length < 2;
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.read(this.bin === null ? 0 : this.bin + steps[event.key]);
  }

  read(bin) {
    if (!this.line) return;
    this.bin = Math.max(0, Math.min(this.edges.length - 2, bin));
    const told = this.lines.map(({ name, mean, peak, unit }) => `${name} ${amount(mean[this.bin], unit)} (peak ${amount(peak[this.bin], unit)})`);
    this.said.textContent = `From ${clock(this.edges[this.bin])} to ${clock(this.edges[this.bin + 1])}: ${told.join(", ")}.`;
    this.draw();
  }

  draw() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      if (this.line) this.chart(this.canvas, this.line);
    });
  }

  chart(canvas, { name, unit, mean, peak, most, least }) {
    const { context, width, height } = prepared(canvas);
    const colours = theme(), { edges } = this, from = edges[0], to = edges.at(-1);
    const high = Math.max(most ?? 0, ...peak, least + 1e-9) || 1, deep = height - AXIS;
    const x = (time) => ((time - from) / (to - from)) * width;
    const y = (value) => TOP + (1 - Math.max(0, value - least) / (high - least)) * (deep - TOP);
    const steps = (values) => {
      context.beginPath();
      context.moveTo(x(from), y(least));
      values.forEach((value, k) => {
        context.lineTo(x(edges[k]), y(value));
        context.lineTo(x(edges[k + 1]), y(value));
      });
      context.lineTo(x(to), y(least));
    };
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.28;
    steps(peak);
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    steps(mean);
    context.stroke();
    if (most) dashed(context, y(most), width, colours);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.text;
    const range = `${name}, ${least ? `from ${amount(least, unit)} ` : ""}up to ${amount(high, unit)}`, free = context.measureText(range).width + 12;
    context.fillText(range, 4, 12);
    if (this.now !== null) {
      context.fillStyle = colours.bad;
      context.fillRect(x(this.now) - 1, TOP, 2, deep - TOP);
      context.fillText("now", Math.max(free, Math.min(x(this.now) - 11, width - 24)), 12);
    }
    if (this.bin !== null) {
      context.fillStyle = colours.text;
      context.fillRect(x((edges[this.bin] + edges[this.bin + 1]) / 2) - 0.5, TOP, 1, deep - TOP);
    }
    scale(context, levels(least, high, deep - TOP, unit), (value) => amount(value, unit), y, TOP, width, colours);
    axis(context, from, to, width, deep, colours);
  }
}

function dashed(context, at, width, colours) {
  context.strokeStyle = colours.dim;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(0, at);
  context.lineTo(width, at);
  context.stroke();
  context.setLineDash([]);
}

const LARGER = [[1e9, "G"], [1e6, "M"], [1e3, "k"]], SCALED = ["W", "Wh", "g", "g/h"], TONNE = 1e6;

/** A value with its unit. */
export function amount(value, unit) {
  if (!SCALED.includes(unit)) return unit ? `${number(value)} ${unit}` : number(value);
  if (unit.startsWith("g") && value >= TONNE) return `${number(value / TONNE)} t${unit.slice(1)}`;
  const [by, prefix] = LARGER.find(([size]) => value >= size) ?? [1, ""];
  return `${number(value / by)} ${prefix}${unit}`;
}
