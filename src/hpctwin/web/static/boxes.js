// Drawing of jobs as boxes or, where too many lie, as how full each pixel is; and of the axes.

import { ahead, dated, parts } from "./clock.js";
import { SHARES } from "./colours.js";

const LEAST_LABEL = 34, FORECAST = 2, LEAST_WHISKER = 8, MOST_WHISKERS = 80;
const STRENGTH = [0.55, 0.95, 0.35];

/** Boxes one by one.
 * @param picture boxes, and the colors of their groups. @param place x and y of a time and of a lane, and the size. */
export function drawBoxes(context, picture, { x, y, width, deep }, colours) {
  const { group, kind, colours: tints } = picture;
  for (const [i, left, top, wide, tall] of seen(picture, { x, y, width, deep })) {
    const tint = tints[group[i]];
    context.globalAlpha = STRENGTH[kind[i]];
    context.fillStyle = tint;
    context.fillRect(left, top, wide, tall);
    context.globalAlpha = 1;
    if (kind[i] === FORECAST && wide > 6) hatch(context, left, top, wide, tall, tint);
    if (tall > 3 && wide > 3) {
      context.strokeStyle = colours.back;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, top + 0.5, wide - 1, tall - 1);
    }
  }
}

/** Names of jobs where there is room, and of a marked job in any case. */
export function drawNames(context, picture, place, colours) {
  const { jobs, marked } = picture, last = [];
  for (const [i, ...box] of seen(picture, place)) {
    const [, , wide, tall] = box;
    if (marked?.[i]) last.push([jobs[i], ...box]);
    else if (wide > LEAST_LABEL && tall > 12 && jobs[i] !== undefined) label(context, jobs[i], ...box, colours);
  }
  for (const one of last) mark(context, place.width, colours, ...one);
}

/** Number, left, top, width and height of each box within a drawing. */
function* seen({ start, end, first, count, from_s: from }, { x, y, width, deep }) {
  for (let i = 0; i < start.length; i += 1) {
    const left = Math.max(-2, x(from + start[i])), right = Math.min(width + 2, x(from + end[i]));
    const top = Math.max(-2, y(first[i])), bottom = Math.min(deep + 2, y(first[i] + count[i]));
    if (right < 0 || left > width || bottom < 0 || top > deep) continue;
    yield [i, left, top, Math.max(1, right - left), Math.max(1, bottom - top)];
  }
}

/** From when to when starts are forecast, over the boxes, if there are not too many.
 * @param picked id of a job that always has its line. */
export function drawWhiskers(context, picture, { x, y, width, deep }, colours, picked) {
  const { first, count, low, high, jobs, from_s: from } = picture, shown = [];
  if (!low) return;
  for (let i = 0; i < low.length; i += 1) {
    const top = Math.max(0, y(first[i])), bottom = Math.min(deep, y(first[i] + count[i])), at = [x(from + low[i]), x(from + high[i])];
    if (at[1] - at[0] >= 2 && at[1] > 0 && at[0] < width && bottom > top) shown.push([at, (top + bottom) / 2, bottom - top, jobs[i] === picked]);
  }
  const few = shown.length <= MOST_WHISKERS;
  context.strokeStyle = colours.text;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [at, middle, tall, mine] of shown) {
    if (!mine && (!few || tall < LEAST_WHISKER)) continue;
    context.moveTo(at[0], middle);
    context.lineTo(at[1], middle);
    for (const end of at) {
      context.moveTo(end, middle - 4);
      context.lineTo(end, middle + 4);
    }
  }
  context.stroke();
}

/** A frame around a job, and its name in full. */
function mark(context, width, colours, name, left, top, wide, tall) {
  context.strokeStyle = colours.text;
  context.lineWidth = 3;
  context.strokeRect(left + 1, top + 1, Math.max(2, wide - 2), Math.max(2, tall - 2));
  context.font = "bold 11px system-ui, sans-serif";
  context.fillStyle = colours.text;
  const needs = context.measureText(name).width;
  plate(context, name, Math.max(2, Math.min(left + 6, width - needs - 4)), top + tall / 2 + 4, colours);
}

/** A text that covers what is behind it. */
function plate(context, text, x, y, colours) {
  const colour = context.fillStyle;
  context.globalAlpha = 0.8;
  context.fillStyle = colours.back;
  context.fillRect(x - 2, y - 11, context.measureText(text).width + 4, 14);
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** A picture as an image: of many boxes, or of the share of each pixel. */
export function bitmap(picture, colours) {
  const { width, height } = picture;
  const canvas = document.createElement("canvas");
  if (picture.boxes) {
    // A lane may be thinner than a pixel in what is asked for; an image of boxes is as high as the screen.
    canvas.width = width;
    canvas.height = Math.max(height, 340);
    const x = (time) => ((time - picture.from_s) / (picture.to_s - picture.from_s)) * width;
    const y = (lane) => ((lane - picture.top) / (picture.bottom - picture.top)) * canvas.height;
    drawBoxes(canvas.getContext("2d"), picture, { x, y, width, deep: canvas.height }, colours);
    return canvas;
  }
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer), { cells } = picture;
  for (let i = 0; i < cells.length; i += 1) pixels[i] = SHARES[cells[i]];
  context.putImageData(image, 0, 0);
  return canvas;
}

function label(context, job, left, top, wide, tall, colours) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, tall);
  context.clip();
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.text;
  plate(context, job, Math.max(left, 0) + 4, top + tall / 2 + 4, colours);
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
  for (let x = left - tall; x < left + wide; x += 7) {
    context.moveTo(x, top + tall);
    context.lineTo(x + tall, top);
  }
  context.stroke();
  context.restore();
}

const DAY = 86400, SOON = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800];
const DAYS = [1, 2, 7, 14].map((days) => days * DAY), MONTHS = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000];
const LONGER = Array.from({ length: 24 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3) * DAY);
export const LEFT = 6, ROW = 16;
const GAP = 10, LEVEL = 36, ROUND = [1, 2, 5, 10], SPANS = [...SOON, DAY / 2, DAY], EVEN = 1e-6;

/** Times below a drawing: dates in the zone of the page, or times since the clock's start. */
export function axis(context, from, to, width, deep, colours) {
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = colours.line;
  context.fillStyle = colours.dim;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, deep + 0.5);
  context.lineTo(width, deep + 0.5);
  let free = 0;
  for (const [at, text] of ticks(context, from, to, width)) {
    const x = ((at - from) / (to - from)) * width, wide = context.measureText(text).width;
    context.moveTo(x, deep);
    context.lineTo(x, deep + 4);
    const left = Math.min(x + 3, width - wide);
    if (left < free) continue;
    context.fillText(text, left, deep + 15);
    free = left + wide + GAP;
  }
  context.stroke();
}

/** Where names of lines are, in as many rows as they need. */
export function placed(context, names, width) {
  let x = LEFT, y = 0;
  return names.map((name) => {
    const wide = 36 + context.measureText(name).width;
    if (x > LEFT && x + wide > width) [x, y] = [LEFT, y + ROW];
    x += wide;
    return { x: x - wide, y };
  });
}

/** Round values between two bounds, at least LEVEL pixels apart. @param unit "s" for durations. */
export function levels(least, high, deep, unit) {
  if (high - least < EVEN * Math.abs(high)) return [least];
  const rough = (high - least) / Math.max(1, Math.floor(deep / LEVEL)), size = unit === "s" && rough > DAY ? DAY : 1;
  const power = size * 10 ** Math.floor(Math.log10(rough / size)), round = power * (ROUND.find((one) => one * power >= rough) ?? 10);
  const step = unit === "s" && rough > 1 && rough <= DAY ? SPANS.find((one) => one >= rough) : round;
  const first = Math.ceil(least / step - EVEN), last = Math.floor(high / step + EVEN);
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
}

/** Draws values as lines across a chart, with their texts. @param y height of a value. */
export function scale(context, values, text, y, top, width, colours) {
  context.font = "11px system-ui, sans-serif";
  context.lineJoin = "round";
  for (const value of values) {
    const at = Math.round(y(value)) - 0.5;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(0, at, width, 0);
    if (at < top + 8) continue;
    context.strokeStyle = colours.back;
    context.lineWidth = 3;
    context.strokeText(text(value), 4, at - 3);
    context.fillStyle = colours.dim;
    context.fillText(text(value), 4, at - 3);
  }
}

/** Times and texts of the finest axis of which no two texts touch. */
function ticks(context, from, to, width) {
  const fits = (step, text) => (step / (to - from)) * width > context.measureText(text).width + GAP;
  if (!dated()) {
    const steps = [...SOON, ...LONGER], step = steps.find((one) => fits(one, since(to, one))) ?? steps.at(-1);
    return every(from, to, step, 0).map((at) => [at, since(at, step)]);
  }
  const step = [...SOON, ...DAYS].find((one) => fits(one, one < 60 ? "00:00:00" : "30 Sep"));
  if (step) return every(from, to, step, ahead(from)).map((at) => [at, date(at, step)]);
  const months = MONTHS.find((one) => fits(one * 28 * DAY, one < 12 ? "Sep 2000" : "2000")) ?? MONTHS.at(-1);
  const { year, month } = parts(from), found = [];
  for (let i = Math.floor((12 * year + month - 1) / months) * months; ; i += months) {
    const utc = Date.UTC(Math.floor(i / 12), i % 12, 1) / 1000, at = utc - ahead(utc);
    if (at >= to) return found;
    if (at >= from) found.push([at, months < 12 ? `${parts(at).monthName} ${parts(at).year}` : parts(at).year]);
  }
}

function every(from, to, step, shift) {
  const found = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at < to; at += step) found.push(at);
  return found;
}

/** A time since the clock's start, in the unit of the step, so that no two ticks have the same text. */
function since(at, step) {
  const [unit, size] = [["d", DAY], ["h", 3600], ["min", 60]].find(([, one]) => step >= one) ?? ["s", 1];
  return `${Math.round(at / size).toLocaleString("en")} ${unit}`;
}

function date(at, step) {
  const { day, monthName, hour, minute, second } = parts(at);
  if (step >= DAY || (hour === "00" && minute === "00" && second === "00")) return `${+day} ${monthName}`;
  return step < 60 ? `${hour}:${minute}:${second}` : `${hour}:${minute}`;
}

/** Names of lanes left of a drawing: of nodes where they are tall enough, else of racks or switches. */
export function laneAxis(context, labels, y, left, deep, colours) {
  const { nodes, places } = labels, tall = nodes.length ? y(nodes[0][0] + nodes[0][1]) - y(nodes[0][0]) : 0;
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = colours.line;
  context.fillStyle = colours.dim;
  context.lineWidth = 1;
  context.beginPath();
  let free = 0;
  for (const [first, lanes, name] of tall >= 11 || !places.length ? nodes : places) {
    const top = Math.max(0, y(first)), bottom = Math.min(deep, y(first + lanes)), at = (top + bottom) / 2 + 4;
    if (bottom <= top) continue;
    context.moveTo(left - 4, top + 0.5);
    context.lineTo(left, top + 0.5);
    if (at - 8 < free || at > deep + 4) continue;
    context.fillText(shortened(context, name, left - 11), 3, at);
    free = at + 3;
  }
  context.stroke();
}

/** A text without its begin, as far as there is room; ends tell names apart. */
export function shortened(context, text, wide) {
  if (context.measureText(text).width <= wide) return text;
  let kept = text;
  while (kept && context.measureText(`…${kept}`).width > wide) kept = kept.slice(1);
  return `…${kept}`;
}
