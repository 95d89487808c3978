// Times as people read them, in one time zone that the page names: the site's, the browser's or UTC.

import { element, replace, span } from "./words.js";

const KEY = "hpctwin-zone", MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
let told = { unix_time: true, zone: "UTC" }, choice = localStorage.getItem(KEY) ?? "site";
const formats = new Map();

/** Takes what the server says of its times; see Clock in web/views/views.py. */
export function tell(clock) {
  told = clock;
}

/** Whether times are dates; if not, they count from the clock's start. */
export function dated() {
  return told.unix_time;
}

function zone() {
  return { site: told.zone, browser: own }[choice] ?? "UTC";
}

/** Formats of a zone; UTC if this browser does not know it. */
function format(name) {
  const digits = Object.fromEntries(["month", "day", "hour", "minute", "second"].map((one) => [one, "2-digit"]));
  const options = { ...digits, year: "numeric", hourCycle: "h23", timeZoneName: "short" };
  try {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: name });
  } catch {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
  }
}

/** Year, month (from 0), day, hour, minute, second and short name of the zone at a time. */
export function parts(seconds) {
  const name = zone();
  if (!formats.has(name)) formats.set(name, format(name));
  const found = Object.fromEntries(formats.get(name).formatToParts(seconds * 1000).map(({ type, value }) => [type, value]));
  return { ...found, monthName: MONTHS[found.month - 1], zone: found.timeZoneName };
}

/** Seconds that clocks in the zone are ahead of UTC at a time. */
export function ahead(seconds) {
  const { year, month, day, hour, minute, second } = parts(seconds);
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - Math.floor(seconds);
}

/** A moment: a date, or the time since the clock's start. */
export function clock(seconds) {
  if (!told.unix_time) return span(seconds);
  const { year, month, day, hour, minute, second } = parts(seconds);
  return `${year}-${month}-${day} ${hour}:${minute}:${second}`;
}

/** A moment with the name of its zone. */
export function zonedClock(seconds) {
  return told.unix_time ? `${clock(seconds)} ${parts(seconds).zone}` : clock(seconds);
}

/** A sentence of the server with its dates in the zone of the page; see clock_text in twin/words.py. */
export function zoned(text) {
  return text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, day, time) => {
    return zonedClock(Date.parse(`${day}T${time}Z`) / 1000);
  });
}

/** Fills the choice of the zone, and calls `changed` after each choice. */
export function chooser(select, changed) {
  select.addEventListener("change", () => {
    choice = select.value;
    localStorage.setItem(KEY, choice);
    changed();
  });
}

/** Shows the zones, or that there are no dates. */
export function showZones(select) {
  const zones = [["site", `${told.zone} (site)`], ["browser", `${own} (this browser)`], ["UTC", "UTC"]];
  const names = told.unix_time ? zones : [["", "since clock start"]];
  const text = JSON.stringify(names);
  if (select.dataset.shown === text) return;
  select.dataset.shown = text;
  replace(select, names.map(([value, name]) => element("option", name, { value })));
  select.value = told.unix_time ? choice : "";
  select.disabled = !told.unix_time;
}
