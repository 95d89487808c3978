// All nodes as cells, by where they stand: each filled as far as it is held.

import { shortened } from "./boxes.js";
import { clock } from "./clock.js";
import { COLOURS } from "./colours.js";
import { address } from "./links.js";
import { prepared, theme } from "./words.js";

const LABEL = 13, GAP = 10, LARGEST = 40, LEAST = 5, BORDERS = 2, LEAST_LABEL = 44, SHORT = 220, TALL = 900;

export class Nodes {
  /** @param said element that names the node pointed at. @param by choice of what a cell is filled by. */
  constructor(canvas, said, by) {
    this.canvas = canvas;
    this.said = said;
    this.by = by;
    this.nodes = [];
    this.places = [];
    this.cells = [];
    this.at = -1;
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("click", () => this.open());
    canvas.addEventListener("pointermove", (event) => this.name(this.find(event.offsetX, event.offsetY)));
    by.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.lay()).observe(canvas);
  }

  set(nodes) {
    this.nodes = nodes;
    const busy = nodes.filter((node) => node.jobs.length).length;
    const away = nodes.filter((node) => node.state !== "up").length;
    this.canvas.setAttribute("aria-label", `${nodes.length} nodes: ${busy} with jobs, ${away} drained or down`);
    const known = new Set(nodes.flatMap((node) => Object.keys(node.load)));
    for (const one of this.by.options) one.hidden = one.value !== "" && !known.has(one.value);
    this.by.parentElement.hidden = known.size < 1;
    const order = new Map();
    nodes.forEach(({ place }, i) => {
      if (!order.has(place)) order.set(place, []);
      order.get(place).push(i);
    });
    this.places = [...order];
    this.lay();
  }

  /** The largest cells with which all places find room, one block beside the other; where many nodes would
   * become too small to tell apart, the drawing grows. */
  lay() {
    const width = this.canvas.clientWidth;
    if (!width || !this.nodes.length) return;
    const most = Math.max(...this.places.map(([, numbers]) => numbers.length));
    const within = (tall, from, least) => {
      let found = null;
      for (let size = from; size >= least && !(found && found.deep <= tall); size -= size > 8 ? 2 : 0.5) found = this.blocks(size, width, most);
      return found;
    };
    let found = within(SHORT, LARGEST, LEAST);
    if (found.deep > SHORT) found = within(TALL, LEAST, 1);
    const height = `${Math.max(SHORT, Math.ceil(found.deep) + BORDERS)}px`;
    if (this.canvas.style.height !== height) this.canvas.style.height = height;
    Object.assign(this, found);
    this.draw();
  }

  blocks(size, width, most) {
    const columns = Math.max(1, Math.min(Math.floor((width - 2) / size), Math.ceil(Math.sqrt(most * (this.places.length > 1 ? 1 : width / SHORT)))));
    const cells = new Array(this.nodes.length), labels = [];
    const named = this.places.length > 1, top = named ? LABEL : 0;
    let x = 0, y = 0, row = 0;
    for (const [place, numbers] of this.places) {
      const wide = Math.min(columns, numbers.length) * size, deep = Math.ceil(numbers.length / columns) * size + top;
      if (x > 0 && x + wide > width) {
        x = 0;
        y += row + GAP / 2;
        row = 0;
      }
      if (named) labels.push({ place, x, y, wide: Math.max(wide, LEAST_LABEL) });
      numbers.forEach((number, i) => { cells[number] = { x: x + (i % columns) * size, y: y + top + Math.floor(i / columns) * size }; });
      x += Math.max(wide, named ? LEAST_LABEL : 0) + GAP;
      row = Math.max(row, deep);
    }
    return { size, columns, cells, labels, deep: y + row };
  }

  find(x, y) {
    return this.cells.findIndex((cell) => x >= cell.x && x < cell.x + this.size && y >= cell.y && y < cell.y + this.size);
  }

  key(event) {
    if (event.key === "Enter") this.open();
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

  /** Goes to the page of the node pointed at. */
  open() {
    if (this.nodes[this.at]) location.assign(address("node", this.nodes[this.at].name));
  }

  /** How far a node's cell is filled: by what is chosen, else by what it is fullest of. */
  held(node) {
    const shares = this.by.value ? [node.load[this.by.value] ?? 0] : Object.values(node.load);
    if (!this.by.value && !shares.length) return node.jobs.length ? 1 : 0;
    return Math.max(...shares);
  }

  draw() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      this.paint();
    });
  }

  paint() {
    const { context } = prepared(this.canvas);
    const colours = theme(), gap = this.size > 6 ? 1 : 0, size = Math.max(1, this.size - 2 * gap);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.dim;
    for (const { place, x, y, wide } of this.labels ?? []) context.fillText(shortened(context, place, wide), x, y + 10);
    this.nodes.forEach((node, i) => {
      if (!this.cells[i]) return;
      const x = this.cells[i].x + gap, y = this.cells[i].y + gap;
      if (size > 3) {
        context.strokeStyle = colours.line;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
      const deep = this.held(node) * size;
      if (node.jobs.length && deep > 0) {
        context.fillStyle = COLOURS[0];
        context.fillRect(x, y + size - Math.max(1, deep), size, Math.max(1, deep));
      }
      if (node.state !== "up") mark(context, node.state, x, y, size, colours);
      else if (node.power && node.power !== "on") asleep(context, node.power, x, y, size, colours);
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

/** A dot where a node sleeps, a ring where it is switched. */
function asleep(context, power, x, y, size, colours) {
  context.strokeStyle = context.fillStyle = colours.dim;
  context.lineWidth = 1;
  context.beginPath();
  context.arc(x + size / 2, y + size / 2, Math.max(0.8, size / 5), 0, 2 * Math.PI);
  if (power === "asleep") context.fill();
  else context.stroke();
}

const NAMES = { cores: "of its cores", memory_gb: "of its memory", gpus: "of its GPUs" };

function describe(node) {
  const jobs = node.jobs.length ? `job ${node.jobs.join(", ")} until ${clock(node.until_s)} at most` : "no job";
  const load = Object.entries(node.load).filter(() => node.jobs.length).map(([name, share]) => `, ${Math.round(100 * share)} % ${NAMES[name]}`).join("");
  return `${node.name} (${node.place}): ${node.state}${node.power && node.power !== "on" ? `, ${node.power}` : ""}, ${jobs}${load}.`;
}
