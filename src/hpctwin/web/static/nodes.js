// All nodes as a grid of cells.

import { clock, colour, prepared, theme } from "./words.js";

export class Nodes {
  constructor(canvas, said) {
    this.canvas = canvas;
    this.said = said;
    this.nodes = [];
    this.at = -1;
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointermove", (event) => this.name(this.find(event)));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  set(nodes) {
    this.nodes = nodes;
    const busy = nodes.filter((node) => node.jobs.length).length;
    const away = nodes.filter((node) => node.state !== "up").length;
    this.canvas.setAttribute("aria-label", `${nodes.length} nodes: ${busy} with jobs, ${away} drained or down`);
    this.draw();
  }

  get columns() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    let columns = Math.ceil(Math.sqrt((this.nodes.length * width) / Math.max(1, height))) || 1;
    while (Math.ceil(this.nodes.length / columns) * (width / columns) > height) columns += 1;
    return columns;
  }

  get cell() {
    return Math.min(64, this.canvas.clientWidth / this.columns);
  }

  find(event) {
    const column = Math.floor(event.offsetX / this.cell);
    if (column >= this.columns) return -1;
    return Math.floor(event.offsetY / this.cell) * this.columns + column;
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (!(event.key in steps) || !this.nodes.length) return;
    event.preventDefault();
    const next = this.at < 0 ? 0 : this.at + steps[event.key];
    this.name(Math.max(0, Math.min(this.nodes.length - 1, next)));
  }

  name(index) {
    if (index === this.at) return;
    this.at = index;
    const node = this.nodes[index];
    this.said.textContent = node ? describe(node) : "";
    this.draw();
  }

  draw() {
    const { context } = prepared(this.canvas);
    const colours = theme();
    const { columns, cell } = this;
    const gap = cell > 6 ? 1 : 0;
    this.nodes.forEach((node, i) => {
      const x = (i % columns) * cell + gap, y = Math.floor(i / columns) * cell + gap, size = Math.max(1, cell - 2 * gap);
      if (node.jobs.length) {
        context.fillStyle = colour(node.jobs[0]);
        context.fillRect(x, y, size, size);
      } else if (size > 3) {
        context.strokeStyle = colours.line;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
      if (node.state !== "up") mark(context, node.state, x, y, size, colours);
      if (i === this.at) {
        context.strokeStyle = colours.text;
        context.lineWidth = 3;
        context.strokeRect(x, y, size, size);
      }
    });
  }
}

function mark(context, state, x, y, size, colours) {
  context.strokeStyle = state === "down" ? colours.bad : colours.dim;
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  context.moveTo(x, y + size);
  context.lineTo(x + size, y);
  if (state === "down") {
    context.moveTo(x, y);
    context.lineTo(x + size, y + size);
  }
  context.stroke();
}

function describe(node) {
  const jobs = node.jobs.length ? `job ${node.jobs.join(", ")} until ${clock(node.until_s)} at the longest` : "no job";
  return `${node.name} (${node.group}): ${node.state}, ${jobs}.`;
}
