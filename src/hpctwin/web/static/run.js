// The page of a simulated run.

import { choose, chosen } from "./address.js";
import * as api from "./api.js";
import { chooser, clock, showZones, tell } from "./clock.js";
import { follow, themed, visitor } from "./frame.js";
import { Gantt } from "./gantt.js";
import { Lines } from "./lines.js";
import { address } from "./links.js";
import { fetched } from "./pictures.js";
import { Table } from "./table.js";
import { counted, element, number, replace, span } from "./words.js";

const at = (id) => document.getElementById(id);
const TOP = ["mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization", "makespan_s", "total_energy_j"];
const PAUSE = 250, MOST = 1000;

const gantt = new Gantt(at("gantt"), at("gantt-said"), at("colour-by"), at("legend"));
const lines = new Lines(at("lines"), at("lines-said"));
const ran = (job) => (job.start_s === null || job.end_s === null ? null : job.end_s - job.start_s);
const time = (seconds) => (seconds === null ? "–" : clock(seconds));
/** `by`: what the server sorts by; the others are sorted among the jobs that are shown. */
const jobs = new Table(at("jobs"), {
  label: "Jobs", key: (job) => job.id, sort: "submit", kind: "jobs short", empty: "No job.", sorted: () => showJobs(true),
  columns: [
    { id: "job", by: "id", title: "Job", value: (job) => job.id, link: (job) => address("job", job.id), width: "minmax(8ch, 1fr)" },
    { id: "user", by: "user", title: "User", value: (job) => job.user, link: (job) => address("user", job.user), width: "minmax(7ch, 1fr)", optional: true },
    { id: "account", by: "account", title: "Account", value: (job) => job.account, width: "minmax(9ch, 1fr)", extra: true },
    { id: "partition", by: "partition", title: "Partition", value: (job) => job.partition, link: (job) => address("partition", job.partition), width: "minmax(9ch, 1fr)", optional: true },
    { id: "nodes", by: "nodes", title: "Nodes", value: (job) => job.nodes, text: (job) => number(job.nodes), width: "9ch", number: true },
    { id: "limit", by: "walltime_s", title: "Limit", value: (job) => job.walltime_s, text: (job) => span(job.walltime_s), width: "12ch", number: true },
    { id: "submit", by: "submit_s", title: "Submitted", value: (job) => job.submit_s, text: (job) => time(job.submit_s), width: "23ch", number: true },
    { id: "began", by: "start_s", title: "Started", value: (job) => job.start_s, text: (job) => time(job.start_s), width: "23ch", number: true, extra: true },
    { id: "ended", by: "end_s", title: "Ended", value: (job) => job.end_s, text: (job) => time(job.end_s), width: "23ch", number: true, extra: true },
    { id: "wait", by: "wait_s", title: "Waited", value: (job) => job.wait_s, text: (job) => span(job.wait_s), width: "12ch", number: true },
    { id: "ran", title: "Ran", value: ran, text: (job) => span(ran(job)), width: "12ch", number: true },
    { id: "state", by: "state", title: "State", value: (job) => job.state, text: (job) => job.state.replaceAll("_", " "), width: "minmax(14ch, 1fr)" },
  ],
});
let wanted = 0, seen = false, order = "submit";

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
  replace(at("figures"), pairs([["policy", head.policy], ["jobs", number(head.jobs)], ["nodes", number(head.nodes)], ...told]));
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

/** @param asked whether a person has changed what is shown. */
async function showJobs(asked = false) {
  const mine = wanted += 1;
  await new Promise((done) => { setTimeout(done, PAUSE); });
  if (mine !== wanted) return;
  const column = jobs.columns.find(({ id, by }) => by && id === jobs.sort.replace("-", ""));
  if (column) order = jobs.sort;
  const { by: sort, title } = jobs.columns.find(({ id }) => id === order.replace("-", ""));
  const find = at("find").value.trim(), down = order.startsWith("-");
  try {
    const { found, shown } = await api.get(`jobs?${new URLSearchParams({ find, sort, order: down ? "desc" : "asc", limit: MOST })}`);
    const cut = found > shown.length ? `; the first ${shown.length.toLocaleString("en")} by ${title} ${down ? "▼" : "▲"}` : "";
    jobs.count.textContent = counted(found, "job") + cut;
    jobs.set(shown, asked);
  } catch (error) {
    jobs.count.textContent = error.message;
  }
  if (asked) at("found").textContent = jobs.count.textContent;
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

at("find").value = chosen("find");
at("find").addEventListener("input", () => {
  choose({ find: at("find").value.trim() });
  showJobs(true);
});
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
