// The page of a simulated run.

import * as api from "./api.js";
import { chooser, clock, showZones, tell } from "./clock.js";
import { follow, themed, visitor } from "./frame.js";
import { Gantt } from "./gantt.js";
import { Lines } from "./lines.js";
import { link } from "./links.js";
import { fetched } from "./pictures.js";
import { element, replace, span } from "./words.js";

const at = (id) => document.getElementById(id);
const TOP = ["mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization", "makespan_s", "total_energy_j"];
const PAUSE = 250;

const gantt = new Gantt(at("gantt"), at("gantt-said"), at("colour-by"), at("legend"));
const lines = new Lines(at("lines"), at("lines-said"));
let wanted = 0, seen = false;

function pairs(rows) {
  return rows.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  });
}

function showHead(head) {
  document.title = `${head.workload} – hpctwin`;
  at("title").textContent = `${head.workload} on ${head.cluster}`;
  at("standing").textContent = head.finished ? "Simulated run" : "Simulation in progress";
  const told = head.figures.filter(({ key }) => TOP.includes(key)).map(({ name, text }) => [name, text]);
  replace(at("figures"), pairs([["policy", head.policy], ["jobs", head.jobs.toLocaleString()], ["nodes", head.nodes.toLocaleString()], ...told]));
  replace(at("trouble"), head.trouble.map((text) => element("li", text)));
  at("trouble").hidden = !head.trouble.length;
  replace(document.querySelector("#all tbody"), head.figures.map(({ name, text }) => {
    const row = element("tr");
    row.append(element("th", name, { scope: "row" }), element("td", text, { class: "n" }));
    return row;
  }));
  at("command").textContent = head.command;
  const versions = Object.entries(head.versions).map(([name, text]) => `${name} ${text}`).join(", ");
  replace(at("made"), [versions, ...Object.entries(head.inputs).map(([name, hash]) => `${name}: SHA-256 ${hash}`)].filter(Boolean).map((text) => element("li", text)));
}

async function showJobs() {
  const mine = wanted += 1;
  await new Promise((done) => { setTimeout(done, PAUSE); });
  if (mine !== wanted) return;
  try {
    const { found, shown } = await api.get(`jobs?${new URLSearchParams({ find: at("find").value.trim() })}`);
    at("found").textContent = `${found.toLocaleString()} jobs${found > shown.length ? `, the first ${shown.length} shown` : ""}`;
    replace(document.querySelector("#jobs tbody"), shown.map(jobRow));
  } catch (error) {
    at("found").textContent = error.message;
  }
}

function jobRow(job) {
  const row = element("tr");
  const name = element("th", "", { scope: "row" });
  name.append(link("job", job.id));
  row.append(name, element("td", job.user ?? ""), element("td", job.partition ?? ""));
  for (const text of [job.nodes, span(job.walltime_s)]) row.append(element("td", String(text), { class: "n" }));
  row.append(element("td", clock(job.submit_s)));
  const ran = job.start_s === null || job.end_s === null ? null : job.end_s - job.start_s;
  for (const seconds of [job.wait_s, ran]) row.append(element("td", span(seconds), { class: "n" }));
  row.append(element("td", job.state.replaceAll("_", " ")));
  return row;
}

async function showTimeline() {
  const facts = await api.get("timeline");
  at("lane").textContent = facts.of;
  at("made-up").hidden = facts.placed;
  gantt.set(fetched, facts);
  await gantt.first();
}

async function show(head) {
  tell(head.clock);
  showZones(at("zone"));
  showHead(head);
  if (!seen) visitor([]).catch(() => null);
  seen = true;
  await early;
  if (gantt.facts.version !== head.version) await showTimeline();
  lines.set(await api.get(`lines?bins=${Math.max(100, Math.min(800, Math.round(at("lines").clientWidth / 2)))}`));
  showJobs();
}

at("find").addEventListener("input", showJobs);
chooser(at("zone"), () => {
  for (const one of [gantt, lines]) one.draw();
  showJobs();
});
themed(() => [gantt, lines]);
api.begin();
// It takes longest, so it does not wait until something is told; what goes wrong, the server tells again.
const early = showTimeline().catch(() => null);
follow(() => api.events("events"), (head) => {
  show(head).catch((error) => { at("standing").textContent = error.message; });
});
