// Numbers as people read them.

const SIZES = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]], LEAST = 0.0005;

/** A duration with three significant digits: "2.08 h"; the same rule as format_duration in model/text.py. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (Math.abs(seconds) < LEAST) return "0 s";
  const [unit, size] = SIZES.find(([, one]) => +(Math.abs(seconds) / one).toPrecision(3) >= 1) ?? SIZES.at(-1);
  const value = seconds / size, rounded = +value.toPrecision(3);
  if (Math.abs(rounded) < 1000) return `${rounded} ${unit}`;
  return `${(Math.sign(value) * Math.round(Math.abs(value))).toLocaleString("en")} ${unit}`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
}

/** A number with its noun: "1 job", "2 jobs". */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function figure(value, unit) {
  return unit === "s" ? span(value) : number(value);
}

/** A text whose characters that turn the direction of writing, or are not seen, are named. */
export function visible(text) {
  return String(text).replace(/[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** An element with text; what others wrote is never read as markup. */
export function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = visible(text);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function replace(parent, children) {
  parent.replaceChildren(...children);
}

/** Sentences as items; what has not changed stays, with what is selected in it. */
export function list(place, texts) {
  texts.forEach((text, i) => {
    const item = place.children[i] ?? place.appendChild(element("li"));
    if (item.textContent !== text) item.textContent = text;
  });
  while (place.children.length > texts.length) place.lastChild.remove();
}

/** Colours of the page as it is now, for drawing. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  return { back: get("back"), text: get("text"), dim: get("dim"), line: get("line"), accent: get("accent"), bad: get("bad") };
}

/** Makes a canvas as fine as the screen; gives its context and size in CSS pixels. */
export function prepared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
