// Jobs on nodes over time, drawn on a canvas.

import { clock, colour, prepared, span, theme } from "./words.js";

const AXIS = 22, LEAST_LABEL = 34;

export class Gantt {
  /** @param said element that names the job pointed at. */
  constructor(canvas, said = null) {
    this.canvas = canvas;
    this.said = said;
    this.bars = [];
    this.nodes = 1;
    this.now = 0;
    this.all = [0, 1];
    this.view = null;
    this.picked = null;
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => { this.held = null; });
    canvas.addEventListener("click", (event) => this.point(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  set(bars, nodes, now, names = []) {
    this.bars = bars;
    this.nodes = Math.max(1, nodes);
    this.now = now;
    this.names = names;
    let [first, last] = [now - 60, now + 60];
    for (const bar of bars) {
      first = Math.min(first, bar.start_s);
      last = Math.max(last, bar.end_s);
    }
    this.all = [Math.max(first, now - 86400), last + (last - first) * 0.02];
    this.draw();
  }

  /** From when to when is shown: a stretch about now until somebody zooms. */
  get shown() {
    if (this.view) return [this.now + this.view[0], this.now + this.view[1]];
    const ahead = Math.max(600, Math.min(this.all[1] - this.now, 86400));
    return [Math.max(this.all[0], this.now - ahead / 2), this.now + ahead];
  }

  look(from, to) {
    this.view = [from - this.now, to - this.now];
    this.draw();
  }

  zoom(factor, at) {
    const [from, to] = this.shown;
    const centre = at ?? (from + to) / 2;
    this.look(centre + (from - centre) * factor, centre + (to - centre) * factor);
  }

  key(event) {
    const [from, to] = this.shown;
    const step = (to - from) / 8;
    if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-" || event.key === "−") this.zoom(1 / 0.7);
    else if (event.key === "ArrowLeft") this.look(from - step, to - step);
    else if (event.key === "ArrowRight") this.look(from + step, to + step);
    else if (event.key === "0") this.look(...this.all);
    else if (event.key === "Enter") this.next();
    else return;
    event.preventDefault();
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, this.time(event.offsetX));
  }

  grab(event) {
    this.held = { x: event.offsetX, shown: this.shown, far: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.held) return;
    const by = event.offsetX - this.held.x;
    if (Math.abs(by) > 3) this.held.far = true;
    const [from, to] = this.held.shown;
    const seconds = (by / this.canvas.clientWidth) * (to - from);
    this.dragged = this.held.far;
    if (this.held.far) this.look(from - seconds, to - seconds);
  }

  time(x) {
    const [from, to] = this.shown;
    return from + (x / this.canvas.clientWidth) * (to - from);
  }

  point(event) {
    if (this.dragged) {
      this.dragged = false;
      return;
    }
    const at = this.time(event.offsetX);
    const row = Math.floor((event.offsetY / (this.canvas.clientHeight - AXIS)) * this.nodes);
    this.pick(this.bars.find((bar) => bar.start_s <= at && at < bar.end_s
      && bar.rows.some(([first, count]) => first <= row && row < first + count)));
  }

  /** The keyboard's way from job to job. */
  next() {
    const [from, to] = this.shown;
    const here = this.bars.filter((bar) => bar.end_s > from && bar.start_s < to);
    this.pick(here[(here.indexOf(this.picked) + 1) % here.length]);
  }

  pick(bar) {
    this.picked = bar ?? null;
    if (this.said) this.said.textContent = bar ? describe(bar, this.names) : "";
    this.draw();
  }

  draw() {
    const { context, width, height } = prepared(this.canvas);
    const [from, to] = this.shown;
    const colours = theme();
    const deep = height - AXIS, row = deep / this.nodes;
    const x = (time) => ((time - from) / (to - from)) * width;
    for (const bar of this.bars) {
      if (bar.end_s <= from || bar.start_s >= to) continue;
      const left = Math.max(-2, x(bar.start_s)), wide = Math.max(1, Math.min(width + 2, x(bar.end_s)) - left);
      for (const [first, count] of bar.rows) paint(context, bar, left, first * row, wide, Math.max(1, count * row), colours, bar === this.picked);
    }
    axis(context, from, to, width, deep, colours);
    const here = x(this.now);
    context.strokeStyle = colours.bad;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(here, 0);
    context.lineTo(here, deep);
    context.stroke();
    context.fillStyle = colours.bad;
    context.fillText("now", Math.min(here + 3, width - 26), 11);
  }
}

function paint(context, bar, left, top, wide, tall, colours, picked) {
  const tint = colour(bar.job);
  context.globalAlpha = bar.kind === "ran" ? 0.45 : bar.kind === "runs" ? 0.95 : 0.25;
  context.fillStyle = tint;
  context.fillRect(left, top, wide, tall);
  context.globalAlpha = 1;
  if (bar.kind === "forecast" && wide > 6) hatch(context, left, top, wide, tall, tint);
  if (picked || (tall > 3 && wide > 3)) {
    context.strokeStyle = picked ? colours.text : colours.back;
    context.lineWidth = picked ? 3 : 1;
    context.strokeRect(left + 0.5, top + 0.5, wide - 1, tall - 1);
  }
  if (wide > LEAST_LABEL && tall > 12) label(context, bar, left, top, wide, tall, colours);
}

function label(context, bar, left, top, wide, tall, colours) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, tall);
  context.clip();
  context.font = "11px system-ui, sans-serif";
  const at = Math.max(left, 0) + 4, across = Math.min(wide, context.measureText(bar.job).width + 4);
  context.globalAlpha = 0.8;
  context.fillStyle = colours.back;
  context.fillRect(at - 2, top + tall / 2 - 7, across, 14);
  context.globalAlpha = 1;
  context.fillStyle = colours.text;
  context.fillText(bar.job, at, top + tall / 2 + 4);
  context.restore();
}

function hatch(context, left, top, wide, tall, tint) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, tall);
  context.clip();
  context.strokeStyle = tint;
  context.lineWidth = 1;
  context.beginPath();
  const begin = Math.max(left, -tall), end = Math.min(left + wide, context.canvas.width);
  for (let x = begin - tall; x < end; x += 7) {
    context.moveTo(x, top + tall);
    context.lineTo(x + tall, top);
  }
  context.stroke();
  context.restore();
}

const STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2592000];

function axis(context, from, to, width, deep, colours) {
  const step = STEPS.find((one) => ((to - from) / one) * 90 < width) ?? STEPS.at(-1);
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = colours.line;
  context.fillStyle = colours.dim;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, deep + 0.5);
  context.lineTo(width, deep + 0.5);
  const shift = from < 1e8 ? 0 : new Date(from * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - shift) / step) * step + shift; at < to; at += step) {
    const x = ((at - from) / (to - from)) * width;
    context.moveTo(x, deep);
    context.lineTo(x, deep + 4);
    const date = new Date(at * 1000);
    const text = at < 1e8 ? span(at) : step >= 86400 ? date.toLocaleDateString([], { month: "short", day: "numeric" })
      : date.toLocaleTimeString([], step < 60 ? {} : { hour: "2-digit", minute: "2-digit" });
    context.fillText(text, x + 3, deep + 15);
  }
  context.stroke();
}

function describe(bar, names) {
  const kinds = { ran: "ran", runs: "runs, at the longest", forecast: "is forecast" };
  const rows = bar.rows.reduce((sum, [, count]) => sum + count, 0);
  const where = bar.kind === "forecast" || !bar.rows.length ? "" : ` on ${names[bar.rows[0][0]] ?? bar.rows[0][0]}${rows > 1 ? " and others" : ""}`;
  return `Job ${bar.job} ${kinds[bar.kind]} from ${clock(bar.start_s)} to ${clock(bar.end_s)} (${span(bar.end_s - bar.start_s)}), ${rows} node${rows === 1 ? "" : "s"}${where}.`;
}
