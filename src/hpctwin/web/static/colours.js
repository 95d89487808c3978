// Colors of groups of jobs. A name keeps its color after a reload and on other pages of this server.

import { element, replace } from "./words.js";

/** Seven colors that color-blind eyes can tell apart (Okabe and Ito 2008), and that of all others. */
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
export const NEUTRAL = "#8a8a8a";
/** Seven steps of a quantity, from little to much (viridis). */
const STEPS = ["#440154", "#443983", "#31688e", "#21918c", "#35b779", "#90d743", "#fde725"];
const FULL = "#0072b2";

const KEY = "hpctwin-colours", MOST = 400;

function hashed(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}

function remembered() {
  try {
    return new Map(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Map();
  }
}

/** The color of each group and, last, that of all others.
 * @param by meaning of the groups. @param names of the groups, the most frequent first. */
export function coloursOf(by, names, ordered) {
  if (ordered) return [...STEPS, NEUTRAL];
  const known = remembered(), before = known.size, taken = new Map();
  const keys = names.map((name) => `${by} ${hashed(name).toString(36)}`);
  for (const key of keys) if (known.has(key) && !taken.has(known.get(key))) taken.set(known.get(key), key);
  const own = new Map([...taken].map(([slot, key]) => [key, slot]));
  keys.forEach((key, i) => {
    if (own.has(key)) return;
    let slot = hashed(names[i]) % COLOURS.length;
    while (taken.has(slot)) slot = (slot + 1) % COLOURS.length;
    taken.set(slot, key);
    own.set(key, slot);
    if (!known.has(key)) known.set(key, slot);
  });
  if (known.size > before) localStorage.setItem(KEY, JSON.stringify([...known].slice(-MOST)));
  const found = Array(COLOURS.length + 1).fill(NEUTRAL);
  keys.forEach((key, i) => { found[i] = COLOURS[own.get(key)]; });
  return found;
}

/** Explains the colors of a picture.
 * @param meaning what the colors mean, in a word. */
export function legend(place, picture, colours, meaning = "") {
  const item = (text, background, form = "swatch") => {
    const swatch = element("span", "", { class: form, "aria-hidden": "true" }), made = element("li");
    swatch.style.background = background;
    made.append(swatch, element("bdi", text));
    return made;
  };
  const names = picture.boxes ? picture.legend : null;
  const others = names && picture.group?.includes(COLOURS.length) ? [item(names.length && !picture.ordered ? "others" : "unknown", NEUTRAL)] : [];
  const title = meaning ? [element("li", `${meaning}:`)] : [];
  const items = names
    ? [...title, ...names.map((name, i) => item(name, colours[i])), ...others]
    : [item("share in use, from little to all", `linear-gradient(to right, ${FULL}1f, ${FULL}f2)`, "swatch ramp")];
  const text = items.map((one) => one.textContent).join("\n") + colours.join();
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  replace(place, items);
}

/** The pixel of each share: the stronger, the more is in use. */
export const SHARES = Uint32Array.from({ length: 256 }, (_, share) => {
  const tint = parseInt(FULL.slice(1), 16);
  const bytes = [(tint >> 16) & 255, (tint >> 8) & 255, tint & 255, share ? Math.round(31 + (211 * share) / 255) : 0];
  return new DataView(Uint8Array.from(bytes).buffer).getUint32(0, true);
});
