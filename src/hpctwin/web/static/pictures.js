// Where a timeline's pictures come from: the server, or what is at hand.

import { bytes, get } from "./api.js";

const ARRAYS = { u1: Uint8Array, i4: Int32Array, f8: Float64Array };
const KINDS = ["ran", "runs", "forecast"];

/** A head and columns as the server packs them (web/columns.py). */
export function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  for (const { name, type, length: count, at } of head.columns) head[name] = new ARRAYS[type](buffer, 4 + length + at, count);
  return head;
}

function query(values) {
  return new URLSearchParams(Object.entries(values).map(([key, value]) => [key, String(value)])).toString();
}

/** Pictures that the server makes of its own timeline. */
export const fetched = {
  picture: async (window) => unpacked(await bytes(`timeline/picture?${query(window)}`)),
  at: (time, lane) => get(`timeline/at?${query({ time_s: time, lane })}`),
};

/** Pictures of bars that are at hand, as an answer to what-if has them.
 * @param groupOf number of a bar's group. @param legend names of the groups. @param colours of the groups.
 * @param marked id of a job that is marked. */
export function given(bars, { groupOf, legend, colours, marked }) {
  const named = (bar) => (bar.job === marked ? "your job" : bar.job);
  const boxes = bars.flatMap((bar) => bar.rows.map(([first, count]) => ({ ...bar, name: named(bar), first, count })));
  const column = (type, value) => ARRAYS[type].from(boxes, value);
  const picture = (window) => ({
    ...window, boxes: true, jobs: boxes.map((box) => box.name), legend, colours, marked: boxes.map((box) => box.job === marked),
    start: column("f8", (box) => box.start_s - window.from_s), end: column("f8", (box) => box.end_s - window.from_s),
    first: column("i4", (box) => box.first), count: column("i4", (box) => box.count),
    group: column("u1", groupOf), kind: column("u1", (box) => KINDS.indexOf(box.kind)),
  });
  const at = (time, lane) => {
    const box = boxes.find((one) => one.start_s <= time && time < one.end_s && one.first <= lane && lane < one.first + one.count);
    return box ? { ...box, job: box.name, lanes: box.rows.reduce((sum, [, count]) => sum + count, 0), where: "" } : null;
  };
  return { picture: async (window) => picture(window), at: async (time, lane) => at(time, lane) };
}
