// Numbers as people read them.

const SIZES = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Seconds as the two largest units: "2 h 5 min". */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const sign = seconds < -0.5 ? "−" : "";
  let left = Math.round(Math.abs(seconds));
  for (let i = 0; i < SIZES.length; i += 1) {
    const [size, unit] = SIZES[i];
    if (left < size && size > 1) continue;
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (i + 1 === SIZES.length) return `${sign}${whole} ${unit}`;
    const [lower, name] = SIZES[i + 1];
    const part = Math.floor(left / lower);
    return part ? `${sign}${whole} ${unit} ${part} ${name}` : `${sign}${whole} ${unit}`;
  }
  return "0 s";
}

const EPOCH = 1e8;

/** A moment, by this browser's time zone; below EPOCH, the time since an emulated clock began. */
export function clock(seconds, withDate = true) {
  if (seconds < EPOCH) return span(seconds);
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return withDate ? `${date.toLocaleDateString()} ${time}` : time;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString() : String(+value.toPrecision(4));
}

export function figure(value, unit) {
  return unit === "s" ? span(value) : number(value);
}

/** Eight colours that colour-blind eyes can tell apart (Okabe and Ito 2008), by a job's id. */
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"];

export function colourNumber(id) {
  let hash = 2166136261;
  for (let i = 0; i < id.length; i += 1) hash = Math.imul(hash ^ id.charCodeAt(i), 16777619);
  return (hash >>> 0) % COLOURS.length;
}

export function colour(id) {
  return COLOURS[colourNumber(id)];
}

/** An element with text; what others wrote is never read as markup. */
export function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
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
