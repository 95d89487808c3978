// Jobs on nodes over time. What is drawn is a picture of a window somewhat larger than what is shown: moving and
// zooming show it at once from another side, and a new one is asked for meanwhile.

import { axis, bitmap, drawBoxes, drawNames, drawWhiskers, laneAxis } from "./boxes.js";
import { clock, tell } from "./clock.js";
import { coloursOf, legend } from "./colours.js";
import { prepared, span, theme } from "./words.js";

const AXIS = 22, TOP = 14, NAMES = 84, SHORT_NAMES = 56, NARROW = 600, PAUSE = 60, MOST_WIDE = 2560, MOST_HIGH = 1024, DIRECT = 1500;
const COARSE = 1.5, FINE = 0.5, MOST_OUT = 20;

export class Gantt {
  /** @param said element that names the job pointed at. @param by choice of what colors mean.
   * @param key list that explains the colors. */
  constructor(canvas, said = null, by = null, key = null) {
    this.canvas = canvas;
    this.said = said;
    this.by = by;
    this.key = key;
    this.touches = new Map();
    this.facts = { lanes: 1, of: "node", from_s: 0, to_s: 1, now_s: null };
    this.source = this.picture = this.view = this.rows = this.picked = null;
    this.version = 0;
    canvas.addEventListener("keydown", (event) => this.press(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.release(event));
    by?.addEventListener("change", () => this.recolour());
    canvas.addEventListener("click", (event) => this.point(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** @param source see pictures.js. @param facts lanes, what they are, from when to when, and now. */
  set(source, facts) {
    this.source = source;
    this.facts = { now_s: null, of: "node", ...facts, lanes: Math.max(1, facts.lanes) };
    if (facts.clock) tell(facts.clock);
    this.version += 1;
    this.draw();
  }

  /** Where the time that is shown is counted from: with a present, it stays where it is on the screen. */
  get anchor() {
    return this.facts.now_s ?? 0;
  }

  /** From when to when there is anything. */
  get all() {
    const { from_s: from, to_s: to } = this.facts;
    return [from, to + Math.max(1e-3, (to - from) * 0.02)];
  }

  /** What is shown: with a future, a stretch about the present until somebody zooms. */
  get shown() {
    const [top, bottom] = this.rows ?? [0, this.facts.lanes];
    let [from, to] = this.all;
    if (this.view) [from, to] = [this.anchor + this.view[0], this.anchor + this.view[1]];
    else if (this.facts.now_s !== null && this.facts.to_s > this.facts.now_s) {
      const ahead = Math.max(600, Math.min(to - this.anchor, 86400));
      [from, to] = [Math.max(from, this.anchor - ahead / 2), this.anchor + ahead];
    }
    return { from, to, top, bottom };
  }

  /** Shows a stretch of time; it stays near that of the jobs. */
  look(from, to) {
    const [first, last] = this.all, size = Math.min(Math.max(to - from, 1e-3), MOST_OUT * (last - first));
    const begin = Math.min(Math.max(from, first - size), last) - this.anchor;
    this.view = [begin, begin + size];
    this.draw();
  }

  lookAt(top, bottom) {
    const size = Math.min(this.facts.lanes, Math.max(1, bottom - top));
    const first = Math.min(Math.max(0, top), this.facts.lanes - size);
    this.rows = size >= this.facts.lanes ? null : [first, first + size];
    this.draw();
  }

  zoom(factor, at) {
    const { from, to } = this.shown;
    const centre = at ?? (from + to) / 2;
    this.look(centre + (from - centre) * factor, centre + (to - centre) * factor);
  }

  zoomRows(factor, at) {
    const { top, bottom } = this.shown;
    const centre = at ?? (top + bottom) / 2;
    this.lookAt(centre + (top - centre) * factor, centre + (bottom - centre) * factor);
  }

  press(event) {
    const { from, to, top, bottom } = this.shown;
    const step = (to - from) / 8, rows = Math.max(1, (bottom - top) / 8);
    if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-" || event.key === "−") this.zoom(1 / 0.7);
    else if (event.key === "ArrowLeft") this.look(from - step, to - step);
    else if (event.key === "ArrowRight") this.look(from + step, to + step);
    else if (event.key === "ArrowUp") this.lookAt(top - rows, bottom - rows);
    else if (event.key === "ArrowDown") this.lookAt(top + rows, bottom + rows);
    else if (event.key === "PageUp") this.zoomRows(0.7);
    else if (event.key === "PageDown") this.zoomRows(1 / 0.7);
    else if (event.key === "0") {
      this.rows = null;
      this.look(...this.all);
    } else if (event.key === "Enter") this.next();
    else return;
    event.preventDefault();
  }

  /** Without Ctrl, the wheel scrolls the page. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const factor = (event.deltaY || event.deltaX) > 0 ? 1.15 : 1 / 1.15;
    if (event.shiftKey) this.zoomRows(factor, this.lane(event.offsetY));
    else this.zoom(factor, this.time(event.offsetX));
  }

  grab(event) {
    this.touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.held = { x: event.offsetX, y: event.offsetY, apart: this.apart, ...this.shown };
    this.canvas.setPointerCapture(event.pointerId);
  }

  release(event) {
    this.touches.delete(event.pointerId);
    this.held = null;
  }

  /** Distance of two fingers; 0 with another number of them. */
  get apart() {
    if (this.touches.size !== 2) return 0;
    const [[x, y], [otherX, otherY]] = this.touches.values();
    return Math.max(20, Math.hypot(x - otherX, y - otherY));
  }

  move(event) {
    if (!this.held) return;
    this.touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    const { x, y, from, to, top, bottom, apart } = this.held, { width, deep } = this.plot;
    if (Math.hypot(event.offsetX - x, event.offsetY - y) > 3) this.dragged = true;
    if (!this.dragged) return;
    if (apart) {
      const centre = (from + to) / 2, factor = apart / this.apart;
      this.look(centre + (from - centre) * factor, centre + (to - centre) * factor);
      return;
    }
    const seconds = ((event.offsetX - x) / width) * (to - from);
    const rows = ((event.offsetY - y) / deep) * (bottom - top);
    this.look(from - seconds, to - seconds);
    this.lookAt(top - rows, bottom - rows);
  }

  /** Where jobs are drawn: right of the names of lanes, below the name of the present. */
  get plot() {
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const left = !this.facts.placed ? 0 : wide < NARROW ? SHORT_NAMES : NAMES;
    const top = this.facts.now_s === null ? 0 : TOP;
    return { left, top, width: Math.max(1, wide - left), deep: Math.max(1, high - AXIS - top) };
  }

  time(x) {
    const { from, to } = this.shown, { left, width } = this.plot;
    return from + ((x - left) / width) * (to - from);
  }

  lane(y) {
    const { top, bottom } = this.shown, { top: begin, deep } = this.plot;
    return top + ((y - begin) / deep) * (bottom - top);
  }

  /** Colors by another meaning. */
  recolour() {
    this.version += 1;
    this.draw();
  }

  async point(event) {
    if (this.dragged) this.dragged = false;
    else await this.pick(this.time(event.offsetX), Math.floor(this.lane(event.offsetY)));
  }

  /** The keyboard's way from job to job. */
  async next() {
    const { from, to, top, bottom } = this.shown, picture = this.picture;
    if (!picture?.boxes) {
      this.say("Too many jobs here to step through; + zooms in.");
      return;
    }
    const here = [];
    for (let i = 0; i < picture.start.length; i += 1) {
      const inside = picture.from_s + picture.end[i] > from && picture.from_s + picture.start[i] < to;
      if (inside && picture.first[i] + picture.count[i] > top && picture.first[i] < bottom) here.push(i);
    }
    const i = here[(here.indexOf(this.walked) + 1) % here.length];
    this.walked = i;
    if (i === undefined) this.say("No job here.");
    else await this.pick(picture.from_s + (picture.start[i] + picture.end[i]) / 2, picture.first[i]);
  }

  async pick(time, lane) {
    try {
      this.picked = await this.source.at(time, lane);
      this.say(this.picked ? describe(this.picked, this.facts.of) : "");
    } catch (error) {
      this.say(error.message);
    }
    this.draw();
  }

  say(text) {
    if (this.said) this.said.textContent = text;
  }

  /** Draws at the next frame, once whatever happens until then. */
  draw() {
    this.due ??= requestAnimationFrame(async () => {
      this.due = null;
      this.paint();
      await this.ask();
      this.settled?.();
    });
  }

  /** Until what is asked for first has been drawn. */
  async first() {
    await new Promise((done) => {
      this.settled = done;
      this.draw();
    });
  }

  paint() {
    const { context } = prepared(this.canvas), { left, top, width, deep } = this.plot;
    if (!this.source) return;
    const colours = theme(), view = this.shown;
    const x = (time) => ((time - view.from) / (view.to - view.from)) * width;
    const y = (lane) => ((lane - view.top) / (view.bottom - view.top)) * deep;
    context.translate(0, top);
    if (left && this.picture?.labels) laneAxis(context, this.picture.labels, y, left, deep, colours);
    context.translate(left, 0);
    context.save();
    context.beginPath();
    context.rect(0, 0, width, deep);
    context.clip();
    if (this.picture?.bitmap) project(context, this.picture, view, width, deep);
    else if (this.picture) drawBoxes(context, this.picture, { x, y, width, deep }, colours);
    if (this.picture?.boxes) drawWhiskers(context, this.picture, { x, y, width, deep }, colours, this.picked?.job);
    if (this.picture?.boxes && (this.picture.marked || !this.picture.bitmap)) drawNames(context, this.picture, { x, y, width, deep }, colours);
    if (this.picture && !this.begun) this.begun = performance.mark("timeline");
    this.borders(context, y, view, width, colours);
    if (this.picked) {
      const { start_s: start, end_s: end, first, count } = this.picked;
      context.strokeStyle = colours.text;
      context.lineWidth = 3;
      context.strokeRect(x(start), y(first), Math.max(2, x(end) - x(start)), Math.max(2, y(first + count) - y(first)));
    }
    context.restore();
    axis(context, view.from, view.to, width, deep, colours);
    if (this.facts.now_s === null) return;
    const here = x(this.facts.now_s);
    if (here < 0 || here > width) return;
    context.fillStyle = colours.bad;
    context.fillRect(here - 1, 0, 2, deep);
    context.fillText("now", Math.max(0, Math.min(here - 11, width - 24)), -3);
  }

  /** Where one shared node ends and the next begins, if there is room for lines. */
  borders(context, y, view, width, colours) {
    const { of, groups } = this.facts;
    if (of !== "core" || !groups) return;
    context.strokeStyle = colours.dim;
    context.lineWidth = 1;
    context.beginPath();
    let lane = 0;
    for (const { nodes, lanes } of groups) {
      if (y(lanes) - y(0) >= 4) {
        for (let i = Math.max(0, Math.floor((view.top - lane) / lanes)); i <= nodes && lane + i * lanes <= view.bottom; i += 1) {
          const at = Math.round(y(lane + i * lanes)) + 0.5;
          context.moveTo(0, at);
          context.lineTo(width, at);
        }
      }
      lane += nodes * lanes;
    }
    context.stroke();
  }

  /** What to ask for: somewhat more than is shown, as far as there is anything; null if the picture will do. */
  wanted() {
    const { from, to, top, bottom } = this.shown, { from_s: first, to_s: last, lanes, made } = this.facts, known = this.picture;
    const inside = [Math.max(from, first), Math.min(to, last)];
    if (inside[0] >= inside[1] || !this.source) return null;
    const { width, deep } = this.plot;
    const covers = known && known.from_s <= inside[0] && inside[1] <= known.to_s && known.top <= top && bottom <= known.bottom;
    if (covers && known.version === this.version) {
      if (!known.bitmap) return null;
      const coarser = (known.to_s - known.from_s) / known.width / ((to - from) / width);
      const rows = (known.bottom - known.top) / known.height / Math.max(1, (bottom - top) / deep);
      if (coarser < COARSE && coarser > FINE && rows < COARSE) return null;
    }
    const aside = (to - from) / 2, above = (bottom - top) / 4;
    const window = {
      from_s: Math.max(first, from - aside), to_s: Math.min(last, to + aside),
      top: Math.floor(Math.max(0, top - above)), bottom: Math.ceil(Math.min(lanes, bottom + above)),
    };
    window.width = Math.min(MOST_WIDE, Math.max(1, Math.round((width * (window.to_s - window.from_s)) / (to - from))));
    const high = Math.round((deep * (window.bottom - window.top)) / (bottom - top));
    window.height = Math.max(1, Math.min(MOST_HIGH, high, window.bottom - window.top));
    // What the server has at hand, if it shows as much.
    const all = window.from_s === first && window.to_s === last && window.top === 0 && window.bottom === lanes;
    if (all && made && window.width / made[0] < COARSE && window.width / made[0] > FINE && window.height / made[1] < COARSE) {
      [window.width, window.height] = made;
    }
    return window;
  }

  /** One at a time; while somebody moves on, not before they pause. */
  async ask() {
    if (this.asking || !this.canvas.clientWidth || !this.wanted()) return;
    this.asking = true;
    if (this.picture) await new Promise((done) => { setTimeout(done, PAUSE); });
    const window = this.wanted(), version = this.version;
    try {
      if (window) {
        const by = this.by?.value ?? "user", found = await this.source.picture({ ...window, by });
        Object.assign(found, { version, width: window.width, height: window.height });
        if (!this.picture && by === "user" && this.by && found.start?.length && !found.legend?.length) {
          // No user is known: all boxes would be gray.
          this.by.value = "wait";
          this.version += 1;
          this.asking = false;
          return await this.ask();
        }
        if (found.boxes) found.colours ??= coloursOf(by, found.legend, found.ordered);
        if (this.key) legend(this.key, found, found.colours ?? [], this.by?.selectedOptions[0].textContent);
        if (!found.boxes || found.start.length > DIRECT) found.bitmap = bitmap(found, theme());
        this.picture = found;
        this.walked = undefined;
      }
    } catch (error) {
      this.say(error.message);
      this.picture ??= null;
      await new Promise((done) => { setTimeout(done, 1000); });
    } finally {
      this.asking = false;
    }
    this.draw();
  }
}

/** A picture as seen from where one looks now. */
function project(context, picture, view, width, deep) {
  const { bitmap: image } = picture;
  const across = image.width / (picture.to_s - picture.from_s), down = image.height / (picture.bottom - picture.top);
  const wide = (view.to - view.from) * across, high = (view.bottom - view.top) * down;
  // A finer picture would lose columns.
  context.imageSmoothingEnabled = wide > width || high > deep;
  context.drawImage(image, (view.from - picture.from_s) * across, (view.top - picture.top) * down, wide, high, 0, 0, width, deep);
}

function describe(box, of) {
  const kinds = { ran: "ran", runs: "runs, at most", forecast: "is scheduled" };
  const where = box.kind === "forecast" || !box.where ? "" : ` on ${box.where}${box.lanes > (of === "core" ? box.count : 1) ? " and others" : ""}`;
  return `Job ${box.job} ${kinds[box.kind]} from ${clock(box.start_s)} to ${clock(box.end_s)} (${span(box.end_s - box.start_s)}), ${box.lanes} ${of}${box.lanes === 1 ? "" : "s"}${where}.`;
}
