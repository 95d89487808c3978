// Weeks of queue, utilization, waits, forecasts and decisions, from the twin's journal.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { link } from "./links.js";
import { facts, section, table } from "./parts.js";
import { element, number, span } from "./words.js";

const DAY = 86400, MOST_LINES = 6;
export const RANGES = { day: ["1 day", DAY, "minute"], week: ["1 week", 7 * DAY, "hour"], month: ["30 days", 30 * DAY, "hour"], all: ["26 weeks", 182 * DAY, "hour"] };

/** The periods of a range up to now; empty ones are null. */
export async function periods(range, now) {
  const [, length, step] = RANGES[range], found = [];
  let step_s = 0;
  for (let next = now - length; next !== null;) {
    const page = await get(`history?${new URLSearchParams({ step, from_s: Math.max(0, next), limit: 5000 })}`);
    found.push(...page.periods);
    step_s = page.step_s;
    next = page.next_s;
  }
  const first = found[0]?.at_s ?? now - step_s, last = found.at(-1)?.at_s ?? first, all = [], edges = [];
  const known = new Map(found.map((one) => [one.at_s, one]));
  for (let at = first; at <= last; at += step_s) {
    edges.push(at);
    all.push(known.get(at) ?? null);
  }
  return { edges: [...edges, last + step_s], all };
}

/** Sums of the users or partitions of some periods, the most starts first. */
function sums(all, kind) {
  const found = new Map();
  for (const period of all) {
    for (const [name, one] of Object.entries(period?.[kind] ?? {})) {
      const sum = found.get(name) ?? { name, starts: 0, wait: 0, most: 0 };
      sum.starts += one.starts;
      sum.wait += one.starts * (one.mean_wait_s ?? 0);
      sum.most = Math.max(sum.most, one.max_wait_s ?? 0);
      found.set(name, sum);
    }
  }
  return [...found.values()].filter((one) => one.starts).sort((a, b) => b.starts - a.starts);
}

function waits(all, kind, one) {
  const numbers = ["Started jobs", "Mean wait", "Longest wait"];
  return table(`By ${one}`, [`${one[0].toUpperCase()}${one.slice(1)}`, ...numbers], sums(all, kind).map(({ name, starts, wait, most }) => [
    name.startsWith("(") ? name : name ? link(one, name) : "(none)", starts, span(wait / starts), span(most),
  ]), numbers);
}

const pick = (all, key) => all.map((one) => one?.[key] ?? null);

/** Charts of a partition or a user over the last week. */
export async function groupHistory(kind, name, now) {
  const { edges, all } = await periods("week", now);
  const of = (key) => all.map((one) => one?.[kind === "user" ? "users" : "partitions"][name]?.[key] ?? null);
  const queue = new Chart("Jobs, hourly mean"), wait = new Chart("Wait until start", "s");
  queue.set(edges, [{ name: "pending", values: of("waiting") }, { name: "running", values: of("running") }]);
  wait.set(edges, [{ name: "mean", values: of("mean_wait_s") }, { name: "longest", values: of("max_wait_s"), most: true }]);
  return section("Last week", queue.canvas, queue.said, wait.canvas, wait.said);
}

/** The page of the whole history. */
export async function historyPage(now) {
  const asked = new URLSearchParams(location.search).get("range"), range = asked in RANGES ? asked : "week";
  const { edges, all } = await periods(range, now);
  const switches = element("p", "", { class: "switch" });
  for (const [key, [text]] of Object.entries(RANGES)) switches.append(element("a", text, { href: `?range=${key}`, ...(key === range ? { "aria-current": "page" } : {}) }));
  const known = all.filter(Boolean), total = (key) => known.reduce((sum, one) => sum + (one[key] ?? 0), 0);
  if (!known.length) return [section("History", switches, element("p", "Nothing is recorded for this time. The twin writes the history once a minute while it runs."))];
  const charts = [
    ["Jobs", "", [["pending, mean", pick(all, "waiting")], ["pending, most", pick(all, "max_waiting"), true], ["running, mean", pick(all, "running")]]],
    ["Nodes in use", "%", [["share", pick(all, "utilization")]]],
    ["Mean wait until start", "s", sums(all, "partitions").slice(0, MOST_LINES).map(({ name }) => [name || "all", all.map((one) => one?.partitions[name]?.mean_wait_s ?? null)])],
    ["Error of first start forecasts, mean", "s", [["error", pick(all, "mean_error_s")]]],
    ["Starts within their 80 % interval", "%", [["share", pick(all, "covered")]]],
    ["Time per decision", "s", [["mean", pick(all, "mean_decision_s")], ["longest", pick(all, "max_decision_s"), true]]],
  ].map(([title, unit, series]) => {
    const chart = new Chart(title, unit);
    chart.set(edges, series.map(([name, values, most]) => ({ name, values, most })));
    return chart;
  });
  const chosen = new Map();
  for (const one of known) for (const [name, count] of Object.entries(one.policies)) chosen.set(name, (chosen.get(name) ?? 0) + count);
  const decided = total("decisions"), shares = [...chosen].sort((a, b) => b[1] - a[1]).filter(([, count]) => count >= decided / 100).map(([name, count]) => `${name} in ${Math.round((100 * count) / decided)} %`);
  const head = facts([
    ["started jobs", number(total("starts"))], ["decisions", number(decided)], ["policy changes", number(total("policy_changes"))], ["chosen", shares.join(", ") || "–"],
  ]);
  const made = section("History", switches, head, element("p", "Charts: ← → read the values. Gaps: the twin did not run.", { class: "hint" }), ...charts.flatMap(({ canvas, said }) => [canvas, said]));
  made.charts = charts;
  return [made, section("Waits", waits(all, "partitions", "partition"), waits(all, "users", "user"))];
}
