// The dashboard: follows the server's events and shows what stands.

import * as api from "./api.js";
import { follow, themed, visitor } from "./frame.js";
import { chooser, clock, showZones, tell, zoned } from "./clock.js";
import { Gantt } from "./gantt.js";
import { amount, Lines } from "./lines.js";
import { link } from "./links.js";
import { fetched } from "./pictures.js";
import { Nodes } from "./nodes.js";
import { Scores } from "./scores.js";
import { WhatIf } from "./whatif.js";
import { counted, element, number, replace, span } from "./words.js";

const at = (id) => document.getElementById(id);
const MOST_ROWS = 500, REST = 2;

const gantt = new Gantt(at("gantt"), at("gantt-said"), at("colour-by"), at("legend"));
const nodes = new Nodes(at("nodes"), at("nodes-said"), at("by"));
const lines = new Lines(at("lines"), at("lines-said"));
const scores = new Scores(at("scores"), at("scores-said"));
new WhatIf(at("whatif"));
let head = null, wanted = 0, decision = null, filling = false, again = false;

function showHead() {
  document.title = `${head.cluster} – hpctwin`;
  at("cluster").textContent = head.cluster || "hpctwin";
  at("standing").textContent = !head.alive ? "The twin is not running" : head.is_active ? "The twin controls scheduling" : `The twin observes (mode ${head.mode})`;
  const figures = [
    ["policy", head.policy + (head.policy_assumed ? " (assumed)" : "")], ["running", head.running], ["pending", head.waiting],
    ["nodes free", `${head.free_nodes} of ${head.nodes}`], ["cluster time", clock(head.time_s)],
    ...drawn(head.energy), ...metered(head.meter),
    ["time per decision", head.cycle_s === null ? "–" : `${number(1000 * head.cycle_s)} ms`],
  ];
  replace(at("figures"), figures.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", String(value)));
    return pair;
  }));
  replace(at("trouble"), head.trouble.map((text) => element("li", zoned(text))));
  at("trouble").hidden = !head.trouble.length;
  replace(at("pool"), head.pool.map((name) => element("option", "", { value: name })));
  replace(at("not-read"), head.not_read.map((text) => element("li", `Not included: ${text}`)));
}

/** What is drawn now, as pairs; and in words what was used so far. */
function drawn(energy) {
  if (!energy) return [];
  const cost = (value) => amount(value, energy.price_unit);
  const used = [amount(energy.energy_j / 3600, "Wh"), ...(energy.price === null ? [] : [`at a price of ${cost(energy.price)}`]),
    ...(energy.carbon === null ? [] : [`${amount(energy.carbon, "g")} of CO₂`])];
  at("used").textContent = `In the last ${span(energy.past_s)}: ${used.join(", ")}.`;
  return [
    ["power", amount(energy.power_w, "W")], ...(energy.pue === null ? [] : [["PUE", number(energy.pue)]]),
    ...(energy.carbon_per_h === null ? [] : [["carbon", `${amount(energy.carbon_per_h, "g")}/h`]]),
    ...(energy.price_per_h === null ? [] : [["price", `${cost(energy.price_per_h)}/h`]]),
  ];
}

/** What the meter tells, as pairs. */
function metered(meter) {
  if (!meter) return [];
  const error = meter.error_pct["expected use"] ?? meter.error_pct.ensemble;
  return [
    ["measured power", meter.power_w === null ? "–" : amount(meter.power_w, "W")],
    ...(meter.expected_w === null ? [] : [[`forecast in ${span(meter.horizon_s)}`, amount(meter.expected_w, "W")]]),
    ...(error === undefined ? [] : [["mean forecast error", `${number(error)} %`]]),
  ];
}

async function showQueue() {
  const mine = wanted += 1;
  const asked = new URLSearchParams({ state: "waiting", limit: MOST_ROWS, find: at("find").value.trim() });
  const { found, shown } = await api.get(`jobs?${asked}`);
  if (mine !== wanted) return;
  const cut = found > shown.length ? `, the first ${shown.length} shown` : "";
  at("found").textContent = `${found} of ${head.waiting} pending jobs${cut}`;
  replace(document.querySelector("#queue tbody"), shown.map(queueRow));
}

function queueRow(job) {
  const row = element("tr"), name = element("td"), button = element("button", job.id, { type: "button", "aria-label": `Job ${job.id}: when does it start?` });
  button.addEventListener("click", () => showJob(job.id));
  name.append(button);
  const from = (time) => (time === null ? "–" : span(Math.max(0, time - head.time_s)));
  const within = job.low_s === null ? "–" : `${from(job.low_s)} … ${from(job.high_s)}${job.calibrated ? "" : " ?"}`;
  row.append(name, element("td", job.user), element("td", job.partition));
  for (const text of [job.nodes, span(job.walltime_s), span(head.time_s - job.submit_s), from(job.start_s)]) row.append(element("td", String(text), { class: "n" }));
  row.append(element("td", within), element("td", job.why, { class: "because" }));
  return row;
}

/** What the timeline shows of the future. */
function showSchedule({ of, schedule }) {
  at("lane").textContent = of;
  const never = schedule.never ? `; ${counted(schedule.never, "job")} would never start` : "";
  at("schedule").textContent = `The future is one simulated schedule: ${schedule.policy}, jobs run for ${schedule.runtimes}, no further submissions${never}.`;
}

async function showJob(id) {
  try {
    const told = await api.get(`jobs/${encodeURIComponent(id)}/explain`);
    replace(at("job"), [...told.why.map((line) => element("p", zoned(line))), link("job", id, `Page of job ${id}`)]);
  } catch (error) {
    replace(at("job"), [element("p", error.message)]);
  }
}

async function showDecisions() {
  const last = await api.get("decisions?limit=200");
  scores.set(last);
  const [first] = last;
  if (!first) return;
  const chosen = first.candidates.length > 1 ? first : last.find((one) => one.candidates.length > 1) ?? first;
  const told = await api.get(`decisions/${chosen.id}/explain`);
  replace(at("explained"), [...told.why.map((line) => element("p", zoned(line))), link("decision", chosen.id, `Page of decision ${chosen.id}`)]);
  const names = Object.keys(chosen.candidates[0].metrics);
  const heading = element("tr");
  heading.append(...["Policy", "Score", ...names.map((name) => name.replace(/_s$/, "").replaceAll("_", " ")), "Starts now"].map((text, i) => element("th", text, { scope: "col", class: i ? "n" : "" })));
  replace(document.querySelector("#candidates thead"), [heading]);
  replace(document.querySelector("#candidates tbody"), [...chosen.candidates].sort((a, b) => a.score - b.score).map((one) => {
    const row = element("tr", "", { class: one.policy === chosen.policy ? "chosen" : "" });
    row.append(element("td", (one.policy === chosen.policy ? "✓ " : "") + one.policy));
    for (const text of [number(one.score), ...names.map((name) => (name.endsWith("_s") ? span(one.metrics[name]) : number(one.metrics[name]))), one.starts]) row.append(element("td", String(text), { class: "n" }));
    return row;
  }));
  showApproval(last.find((one) => one.approval === "pending"));
}

function showApproval(waiting) {
  const place = at("approval");
  place.hidden = !waiting;
  if (!waiting) return;
  const said = element("span", "", { role: "status" });
  const button = (text, approved) => {
    const made = element("button", text, { type: "button" });
    made.addEventListener("click", async () => {
      try {
        await api.send("POST", `decisions/${waiting.id}/approval`, { approved });
        said.textContent = approved ? " Approved." : " Rejected.";
      } catch (error) {
        said.textContent = ` ${error.message}`;
      }
    });
    return made;
  };
  replace(place, [element("p", `Decision ${waiting.id} awaits approval: ${waiting.policy} would start ${waiting.starts.join(", ")}.`), button("Approve", true), " ", button("Reject", false), said]);
}

async function showAccuracy() {
  const rows = await api.get("accuracy");
  replace(document.querySelector("#accuracy tbody"), rows.filter((row) => row.forecasts).map((one) => {
    const row = element("tr");
    const held = one.covered === null ? "–" : `${Math.round(100 * one.covered)} % of ${Math.round(100 * one.promised)} %`;
    row.append(element("th", one.label, { scope: "row" }));
    for (const text of [one.forecasts, span(one.median_error_s), span(one.p90_error_s), span(one.bias_s), held]) row.append(element("td", String(text), { class: "n" }));
    return row;
  }));
}

/** Fetches what has changed; one round at a time, and one more if something changed meanwhile. */
async function fill() {
  again = true;
  if (filling) return;
  filling = true;
  try {
    while (again) {
      again = false;
      const begin = performance.now();
      const bins = Math.max(60, Math.min(600, Math.round(at("lines").clientWidth / 2)));
      const [, grid, facts, told] = await Promise.all([showQueue(), api.get("nodes"), api.get("timeline"), api.get(`lines?bins=${bins}`)]);
      nodes.set(grid);
      showSchedule(facts);
      gantt.set(fetched, facts);
      lines.set(told);
      if (head.decision !== decision) {
        decision = head.decision;
        await showDecisions();
        await showAccuracy();
      }
      // A large cluster that changes all the time leaves the browser, and the server, most of theirs.
      await new Promise((done) => { setTimeout(done, REST * (performance.now() - begin)); });
    }
  } catch (error) {
    at("standing").textContent = error.message;
    decision = null;
  } finally {
    filling = false;
  }
}

at("find").addEventListener("input", () => {
  showQueue().catch((error) => { at("found").textContent = error.message; });
});
chooser(at("zone"), () => {
  decision = null;
  at("job").replaceChildren();
  showHead();
  fill();
});
themed(() => [gantt, nodes, scores, lines]);
api.begin();
follow(() => api.events("events"), (told) => {
  if (!head) visitor([["History", "history"]]).catch(() => null);
  head = told;
  tell(head.clock);
  showZones(at("zone"));
  showHead();
  fill();
});
