// Figures over time: a chart each, with means as a line and peaks as an area behind it.

import { axis } from "./boxes.js";
import { clock, element, number, prepared, theme } from "./words.js";

const AXIS = 22, TOP = 16;

export class Lines {
  /** @param place element that the charts are put into. @param said element that tells the figures at the cursor. */
  constructor(place, said) {
    this.place = place;
    this.said = said;
    this.charts = [];
    this.bin = null;
  }

  /** @param told edges of the bins, and lines; see LinesView. */
  set(told) {
    this.edges = told.edges_s;
    this.now = told.now_s;
    if (this.charts.length !== told.lines.length) {
      this.charts = told.lines.map(() => element("canvas", "", { tabindex: "0", role: "img", class: "line" }));
      for (const canvas of this.charts) {
        canvas.addEventListener("keydown", (event) => this.key(event));
        canvas.addEventListener("pointermove", (event) => this.read(Math.floor((event.offsetX / canvas.clientWidth) * (this.edges.length - 1))));
        new ResizeObserver(() => this.draw()).observe(canvas);
      }
      this.place.replaceChildren(...this.charts);
    }
    this.lines = told.lines;
    this.charts.forEach((canvas, i) => {
      const { name, mean, peak, unit } = this.lines[i];
      const over = mean.reduce((sum, one) => sum + one, 0) / Math.max(1, mean.length);
      canvas.setAttribute("aria-label", `${name}: ${amount(over, unit)} on average, ${amount(Math.max(...peak, 0), unit)} at most`);
    });
    this.draw();
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.read(this.bin === null ? 0 : this.bin + steps[event.key]);
  }

  read(bin) {
    this.bin = Math.max(0, Math.min(this.edges.length - 2, bin));
    const told = this.lines.map(({ name, mean, peak, unit }) => `${name} ${amount(mean[this.bin], unit)} (peak ${amount(peak[this.bin], unit)})`);
    this.said.textContent = `From ${clock(this.edges[this.bin])} to ${clock(this.edges[this.bin + 1])}: ${told.join(", ")}.`;
    this.draw();
  }

  draw() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      this.charts.forEach((canvas, i) => this.chart(canvas, this.lines[i]));
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
    if (this.now !== null) {
      context.fillStyle = colours.bad;
      context.fillRect(x(this.now) - 1, TOP, 2, deep - TOP);
      context.fillText("now", Math.min(x(this.now) + 4, width - 26), TOP + 10);
    }
    if (this.bin !== null) {
      context.fillStyle = colours.text;
      context.fillRect(x((edges[this.bin] + edges[this.bin + 1]) / 2) - 0.5, TOP, 1, deep - TOP);
    }
    axis(context, from, to, width, deep, colours);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colours.text;
    context.fillText(`${name}, ${least ? `from ${amount(least, unit)} ` : ""}up to ${amount(high, unit)}`, 4, 12);
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

export function amount(value, unit) {
  if (!SCALED.includes(unit)) return unit && unit !== "/h" ? `${number(value)} ${unit}` : `${number(value)}${unit}`;
  if (unit.startsWith("g") && value >= TONNE) return `${number(value / TONNE)} t${unit.slice(1)}`;
  const [by, prefix] = LARGER.find(([size]) => value >= size) ?? [1, ""];
  return `${number(value / by)} ${prefix}${unit}`;
}
