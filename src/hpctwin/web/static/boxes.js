// Drawing of jobs as boxes or, where too many lie, as how full each pixel is; and of the axis of time.

import { COLOURS, span } from "./words.js";

const LEAST_LABEL = 34, FORECAST = 2;
const STRENGTH = [0.55, 0.95, 0.25];

/** Boxes one by one, with names where there is room.
 * @param place x and y of a time and of a lane, and the size. */
export function drawBoxes(context, picture, { x, y, width, deep }, colours) {
  const { start, end, first, count, colour, kind, jobs, from_s: from } = picture;
  for (let i = 0; i < start.length; i += 1) {
    const left = Math.max(-2, x(from + start[i])), right = Math.min(width + 2, x(from + end[i]));
    const top = Math.max(-2, y(first[i])), bottom = Math.min(deep + 2, y(first[i] + count[i]));
    if (right < 0 || left > width || bottom < 0 || top > deep) continue;
    const wide = Math.max(1, right - left), tall = Math.max(1, bottom - top);
    const tint = COLOURS[colour[i]];
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
    if (wide > LEAST_LABEL && tall > 12 && jobs[i] !== undefined) label(context, jobs[i], left, top, wide, tall, colours);
  }
}

/** A picture as an image: of many boxes, or of shares and colours by pixel. */
export function bitmap(picture, colours) {
  const { width, height } = picture;
  const canvas = document.createElement("canvas");
  if (picture.boxes) {
    // A lane may be thinner than a pixel in what is asked for; an image of boxes is as high as the screen.
    canvas.width = width;
    canvas.height = Math.max(height, 340);
    const x = (time) => ((time - picture.from_s) / (picture.to_s - picture.from_s)) * width;
    const y = (lane) => ((lane - picture.top) / (picture.bottom - picture.top)) * canvas.height;
    drawBoxes(canvas.getContext("2d"), { ...picture, jobs: [] }, { x, y, width, deep: canvas.height }, colours);
    return canvas;
  }
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer), { cells } = picture;
  for (let i = 0; i < cells.length; i += 1) pixels[i] = PIXELS[cells[i]];
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The pixel of each cell: the colour of those that cover most of it, the stronger the fuller it is. */
const PIXELS = Uint32Array.from({ length: 256 }, (_, cell) => {
  const share = (cell >> 3) / 31, tint = parseInt(COLOURS[cell & 7].slice(1), 16);
  const bytes = [(tint >> 16) & 255, (tint >> 8) & 255, tint & 255, share ? Math.round(255 * (0.12 + 0.73 * share)) : 0];
  return new DataView(Uint8Array.from(bytes).buffer).getUint32(0, true);
});

function label(context, job, left, top, wide, tall, colours) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, tall);
  context.clip();
  context.font = "11px system-ui, sans-serif";
  const at = Math.max(left, 0) + 4, across = Math.min(wide, context.measureText(job).width + 4);
  context.globalAlpha = 0.8;
  context.fillStyle = colours.back;
  context.fillRect(at - 2, top + tall / 2 - 7, across, 14);
  context.globalAlpha = 1;
  context.fillStyle = colours.text;
  context.fillText(job, at, top + tall / 2 + 4);
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

const STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2592000, 7776000, 31536000];
const EPOCH = 1e8;

/** Times below a drawing, by this browser's time zone. */
export function axis(context, from, to, width, deep, colours) {
  const step = STEPS.find((one) => ((to - from) / one) * 90 < width) ?? STEPS.at(-1);
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = colours.line;
  context.fillStyle = colours.dim;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, deep + 0.5);
  context.lineTo(width, deep + 0.5);
  const shift = from < EPOCH ? 0 : new Date(from * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - shift) / step) * step + shift; at < to; at += step) {
    const x = ((at - from) / (to - from)) * width;
    context.moveTo(x, deep);
    context.lineTo(x, deep + 4);
    const text = moment(at, step);
    context.fillText(text, Math.min(x + 3, width - context.measureText(text).width), deep + 15);
  }
  context.stroke();
}

function moment(at, step) {
  if (at < EPOCH) return span(at);
  const date = new Date(at * 1000);
  if (step >= 2592000) return date.toLocaleDateString([], { year: "numeric", month: "short" });
  if (step >= 86400) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  return date.toLocaleTimeString([], step < 60 ? {} : { hour: "2-digit", minute: "2-digit" });
}
