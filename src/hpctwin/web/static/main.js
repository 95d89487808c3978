// The dashboard: follows the server's events and shows what stands.

import { choose, chosen } from "./address.js";
import * as api from "./api.js";
import { chooser, clock, showZones, tell, zoned } from "./clock.js";
import { Decisions } from "./decision.js";
import { follow, themed, visitor } from "./frame.js";
import { Gantt } from "./gantt.js";
import { Jobs } from "./jobs.js";
import { amount, Lines } from "./lines.js";
import { link } from "./links.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { fetched } from "./pictures.js";
import { Scores } from "./scores.js";
import { Table } from "./table.js";
import { WhatIf } from "./whatif.js";
import { counted, element, list, number, replace, span } from "./words.js";

const at = (id) => document.getElementById(id);
const REST = 2, PAGE = 5000;

const gantt = new Gantt(at("gantt"), at("gantt-said"), at("colour-by"), at("legend"));
const nodes = new Nodes(at("nodes"), at("nodes-said"), at("by"));
const lines = new Lines(at("lines"), at("lines-said"));
const scores = new Scores(at("scores"), at("scores-said"));
const overview = new Overview(at, () => decisions.showWaiting(head, overview.operator));
const jobs = new Jobs(at, showJob);
const decisions = new Decisions(at, scores, jobs);
const percent = (share) => (share === undefined ? "" : `${Math.round(100 * share)} %`);
const nodeTable = new Table(at("nodes-table"), {
  label: "Nodes", name: "nodes.", key: (node) => node.name, sort: "node", empty: "No node.",
  columns: [
    { id: "node", title: "Node", value: (node) => node.name, width: "minmax(10ch, 1fr)" },
    { id: "place", title: "Place", value: (node) => node.place, width: "minmax(12ch, 1fr)" },
    { id: "state", title: "State", value: (node) => node.state, width: "9ch" },
    { id: "power", title: "Power", value: (node) => node.power, width: "11ch", extra: true },
    ...[["cores", "Cores"], ["memory_gb", "Memory"], ["gpus", "GPUs"]].map(([id, title]) => (
      { id, title, value: (node) => node.load[id], text: (node) => percent(node.load[id]), number: true, width: "9ch", optional: true })),
    { id: "until", title: "Busy for at most", value: (node) => node.until_s, text: (node) => (node.until_s === null ? "–" : span(Math.max(0, node.until_s - head.time_s))), number: true, width: "16ch" },
    { id: "jobs", title: "Jobs", value: (node) => node.jobs.join(" "), width: "minmax(12ch, 2fr)" },
  ],
});
const accuracy = new Table(at("accuracy"), {
  label: "Accuracy by forecast wait", name: "accuracy.", key: (one) => one.label, empty: "No forecast has come true yet.",
  columns: [
    { id: "wait", title: "Wait forecast", value: (one) => one.label, width: "minmax(13ch, 1fr)" },
    { id: "forecasts", title: "Forecasts", value: (one) => one.forecasts, number: true, width: "10ch" },
    ...[["median_error_s", "Median error", "14ch"], ["p90_error_s", "90 % within", "13ch"], ["bias_s", "Bias", "10ch"]].map(([id, title, width]) => (
      { id, title, value: (one) => one[id], text: (one) => span(one[id]), number: true, width })),
    { id: "covered", title: "In interval", value: (one) => one.covered, text: (one) => (one.covered === null ? "–" : `${percent(one.covered)} of ${percent(one.promised)}`), number: true, width: "14ch" },
  ],
});
new WhatIf(at("whatif"));
let head = null, grid = [], decision = undefined, filling = false, again = false;

function showHead() {
  document.title = `${head.cluster} – hpctwin`;
  at("cluster").textContent = head.cluster || "hpctwin";
  overview.showHead(head);
  const figures = [
    ["policy", head.policy + (head.policy_assumed ? " (assumed)" : "")], ["running", number(head.running)], ["pending", number(head.waiting)],
    ["nodes free", `${number(head.free_nodes)} of ${number(head.nodes)}`], [head.alive ? "cluster time" : "recorded at", clock(head.time_s)],
    ...drawn(head.energy), ...metered(head.meter),
  ];
  figures.forEach(([name, value], i) => {
    const pair = at("figures").children[i] ?? at("figures").appendChild(element("div"));
    if (!pair.firstChild) pair.append(element("dt"), element("dd"));
    [name, String(value)].forEach((text, k) => { if (pair.children[k].textContent !== text) pair.children[k].textContent = text; });
  });
  while (at("figures").children.length > figures.length) at("figures").lastChild.remove();
  list(at("trouble"), head.trouble.map(zoned));
  at("trouble").hidden = !head.trouble.length;
  if ([...at("pool").children].map(({ value }) => value).join() !== head.pool.join()) replace(at("pool"), head.pool.map((name) => element("option", "", { value: name })));
  list(at("not-read"), head.not_read.map((text) => `Not included: ${text}`));
  decisions.showWaiting(head, overview.operator);
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

/** All jobs, page by page. Pages of one version fit together; of others, jobs may be missing until the next round. */
async function allJobs() {
  const all = new Map();
  for (let offset = 0; ; offset += PAGE) {
    const page = await api.get(`jobs?limit=${PAGE}&offset=${offset}`);
    for (const job of page.shown) all.set(job.id, job);
    if (offset + PAGE >= page.found) return [...all.values()];
  }
}

function showNodes() {
  const find = at("find-nodes").value.trim().toLowerCase();
  nodeTable.set(grid.filter((node) => [node.name, node.place, node.state, ...node.jobs].some((text) => text.toLowerCase().includes(find))));
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
      const [all, cells, facts, told] = await Promise.all([allJobs(), api.get("nodes"), api.get("timeline"), api.get(`lines?bins=${bins}`)]);
      jobs.set(all, head.time_s);
      overview.showQueue(all, head);
      grid = cells;
      nodes.set(cells);
      showNodes();
      showSchedule(facts);
      gantt.set(fetched, facts);
      lines.set(told);
      if (head.decision !== decision) {
        decision = head.decision;
        await decisions.load();
        accuracy.set((await api.get("accuracy")).filter((row) => row.forecasts));
      }
      overview.showDecision(decisions.last, all, head);
      // A large cluster that changes all the time leaves the browser, and the server, most of theirs.
      await new Promise((done) => { setTimeout(done, REST * (performance.now() - begin)); });
    }
  } catch (error) {
    at("standing").textContent = error.message;
    decision = undefined;
  } finally {
    filling = false;
  }
}

at("find-nodes").value = chosen("nodes.find");
at("find-nodes").addEventListener("input", () => {
  choose({ "nodes.find": at("find-nodes").value.trim() });
  showNodes();
});
chooser(at("zone"), () => {
  decision = undefined;
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
}, () => overview.showLost());
