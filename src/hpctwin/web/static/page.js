// Pages with addresses: a job, node, user, partition or decision; the history; a comparison of runs.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { clock, tell, zoned, zonedClock } from "./clock.js";
import { follow, themed, visitor } from "./frame.js";
import { groupHistory, historyPage } from "./history.js";
import { address, link } from "./links.js";
import { facts, section, table } from "./parts.js";
import { element, number, replace, span, visible } from "./words.js";

const at = (id) => document.getElementById(id);
const [kind, ...rest] = location.pathname.slice(api.root.length).split("/");
const name = decodeURIComponent(rest.join("/")), TITLES = { history: "History", compare: "Comparison of runs" };
const title = TITLES[kind] ?? `${kind[0].toUpperCase()}${kind.slice(1)} ${name}`;
const HINTS = {
  job: "A job has a page while it is pending or running, and for a day after its end.",
  user: "A user has a page while a job is pending or running, and for a day after. Names of other users may be hidden from you.",
  decision: "The journal deletes decisions after its retention.",
};
const PAUSE = 3000, MOST_NODES = 200;
let me = null, last = null, charts = [], shown = [];

const time = (seconds) => (seconds === null || seconds === undefined ? "–" : clock(seconds));
const all = (names, of) => {
  const made = element("span");
  names.forEach((one, i) => made.append(i ? ", " : "", link(of, one)));
  return names.length ? made : "–";
};
const hidden = (text) => (text || (me.names_hidden ? "hidden" : "–"));
// A page of a user or a partition does not repeat it in each row.
const user = (text) => (kind === "user" ? "–" : text ? link("user", text) : hidden(text));
const partition = (text) => (kind === "partition" ? "–" : link("partition", text ?? ""));
const words = (lines) => lines.map((line) => element("p", zoned(line)));

const NUMBERS = ["Nodes", "Limit", "Starts in", "Waited"];

function jobs(caption, found, now) {
  return table(caption, ["Job", "User", "Account", "Partition", "State", "Nodes", "Limit", "Starts in", "Reason"], found.map((job) => [
    link("job", job.id), user(job.user), hidden(job.account), partition(job.partition), job.state === "waiting" ? "pending" : job.state, number(job.nodes), span(job.walltime_s),
    job.state === "running" ? "–" : job.start_s === null ? "unknown" : span(Math.max(0, job.start_s - now)), job.why || "–",
  ]), NUMBERS);
}

function pastJobs(found) {
  return table("Ended within the last day, newest first", ["Job", "User", "Account", "Partition", "Nodes", "Waited", "Started", "Ended"], found.map((job) => [
    link("job", job.id), user(job.user), hidden(job.account), partition(job.partition), number(job.nodes), job.submit_s === null ? "–" : span(job.start_s - job.submit_s), time(job.start_s), time(job.end_s),
  ]), NUMBERS);
}

async function jobPage(now) {
  const found = await api.get(`jobs/${encodeURIComponent(name)}`);
  const { job, past, state } = found, of = job ?? past, start = job?.state === "waiting" ? null : of.start_s;
  const pairs = [
    ["state", state === "waiting" ? "pending" : state], ["user", user(of.user)], ["account", hidden(of.account)], ["partition", partition(of.partition)], ["nodes", number(of.nodes)],
    ...(job ? [["limit", span(job.walltime_s)]] : []), ["submitted", time(of.submit_s)],
    ...(start === null ? [["starts", job.start_s === null ? "unknown" : `${time(job.start_s)}, in ${span(Math.max(0, job.start_s - now))}`],
      ["probably between", job.low_s === null ? "–" : `${time(job.low_s)} and ${time(job.high_s)}${job.calibrated ? "" : " (few starts observed yet)"}`]]
      : [["started", time(start)], ...(of.submit_s === null ? [] : [["waited", span(start - of.submit_s)]]), [past ? "ended" : "ends at its limit", time(of.end_s)]]),
  ];
  return [
    section("Request and start", facts(pairs), ...(found.node_names.length ? [facts([["on", all(found.node_names.slice(0, MOST_NODES), "node")]])] : [])),
    section("Explanation", ...words(found.why)),
    section("Forecasts", table("Recorded forecasts, oldest first", ["Made", "Start", "Between", "And", ...(start === null ? [] : ["Started later by"])], found.forecasts.map((one) => [
      time(one.made_s), time(one.start_s), time(one.low_s), time(one.high_s), ...(start === null ? [] : [one.start_s === null ? "–" : span(start - one.start_s)]),
    ]), ["Started later by"])),
    section("Actions of the twin", table("Requests to the resource manager", ["Decision", "Decided", "Action", "Result", "Reason"], found.actions.map((one) => [
      link("decision", one.decision), time(one.decided_s), one.kind.replaceAll("_", " "), one.result ?? "in progress", one.reason || "–",
    ]))),
  ];
}

async function nodePage(now) {
  const { node, running, expected, past } = await api.get(`nodes/${encodeURIComponent(name)}`);
  const load = Object.entries(node.load).map(([key, share]) => `${key.replace("_gb", "")} ${Math.round(100 * share)} %`).join(", ");
  return [
    section("State", facts([["state", node.state], ["place", node.place], ...(node.power ? [["power", node.power]] : []), ["in use", load || (node.jobs.length ? "yes" : "no")], ["busy until", time(node.until_s)]])),
    section("Jobs", jobs("Running", running, now), jobs("Expected next (nodes of forecasts are tentative)", expected, now), pastJobs(past)),
  ];
}

async function groupPage(now) {
  const found = await api.get(`${kind}s/${encodeURIComponent(name)}`);
  const limits = kind === "partition" ? [["largest job", found.max_nodes === null ? "no limit" : number(found.max_nodes)], ["longest job", found.max_walltime_s === null ? "no limit" : span(found.max_walltime_s)]]
    : [["accounts", found.accounts.join(", ") || "–"], ["partitions", all(found.partitions, "partition")]];
  const total = found.waiting + found.running, cut = total > found.jobs.length ? `, the first ${number(found.jobs.length)} of ${number(total)}` : "";
  const week = await groupHistory(kind, name, now);
  return [
    section("Now", facts([["pending", number(found.waiting)], ["running", number(found.running)], ["nodes in use", found.nodes === null ? number(found.nodes_in_use) : `${number(found.nodes_in_use)} of ${number(found.nodes)}`], ...limits])),
    section("Jobs", jobs(`Pending and running${cut}`, found.jobs, now), pastJobs(found.past)), week,
  ];
}

async function decisionPage(_, head) {
  const one = await api.get(`decisions/${encodeURIComponent(name)}`);
  const told = await api.get(`decisions/${one.id}/explain`);
  const [before] = await api.get(`decisions?limit=1&before=${one.id}`);
  const pager = element("p", "", { class: "switch" });
  if (before) pager.append(link("decision", before.id, `← Previous (${before.id})`));
  if (one.id < head.decision) pager.append(link("decision", one.id + 1, `Next (${one.id + 1}) →`), link("decision", head.decision, "Latest"));
  const metrics = Object.keys(one.candidates[0]?.metrics ?? {}), titles = ["Score", ...metrics.map((key) => key.replace(/_s$/, "").replaceAll("_", " ")), "Starts now", "Never start"];
  const candidates = [...one.candidates].sort((a, b) => a.score - b.score).map((c) => [
    (c.policy === one.policy ? "✓ " : "") + c.policy, number(c.score), ...metrics.map((key) => (key.endsWith("_s") ? span(c.metrics[key]) : number(c.metrics[key]))), c.starts, c.never,
  ]);
  return [
    section("Decision", pager, facts([
      ["time", time(one.time_s)], ["policy", one.policy], ["before", one.before], ["pending jobs", number(one.waiting)], ["free nodes", number(one.free_nodes)], ["took", `${number(1000 * one.took_s)} ms`],
      ...(one.approval ? [["approval", one.approval]] : []), ["starts", all(one.starts, "job")],
    ]), ...(one.approval === "pending" && me.role === "operator" ? [approval(one.id)] : [])),
    section("Explanation", ...words(told.why)),
    section("Candidates", table("Result of each policy (lower score is better)", ["Policy", ...titles], candidates, titles)),
  ];
}

function approval(number) {
  const made = element("p", "", { class: "switch" }), said = element("span", "", { role: "status" });
  for (const [text, approved] of [["Approve", true], ["Reject", false]]) {
    const button = element("button", `${text} decision ${number}`, { type: "button" });
    button.addEventListener("click", () => api.send("POST", `decisions/${number}/approval`, { approved }).then(() => fill(last), (error) => { said.textContent = error.message; }));
    made.append(button);
  }
  made.append(said);
  return made;
}

// --- simulated runs -----------------------------------------------------------------------------------

async function runJobPage() {
  const job = await api.get(`jobs/${encodeURIComponent(name)}`);
  return [section("Request and start", facts([
    ["state", job.state.replaceAll("_", " ")], ["user", user(job.user)], ["account", hidden(job.account)], ["partition", partition(job.partition)], ["nodes", number(job.nodes)], ["limit", span(job.walltime_s)],
    ["submitted", time(job.submit_s)], ["started", time(job.start_s)], ["ended", time(job.end_s)], ["waited", span(job.wait_s)], ["ran", job.end_s === null || job.start_s === null ? "–" : span(job.end_s - job.start_s)],
  ]))];
}

async function runGroupPage() {
  const found = await api.get(`${kind}s/${encodeURIComponent(name)}`);
  const cut = found.found > found.shown.length ? `, the first ${number(found.shown.length)} of ${number(found.found)}` : "";
  return [
    section("Jobs", facts([["jobs", number(found.found)], ...Object.entries(found.states).map(([state, count]) => [state.replaceAll("_", " "), number(count)]), ["mean wait", span(found.mean_wait_s)], ["longest wait", span(found.max_wait_s)]]),
      table(`By submission${cut}`, ["Job", "User", "Partition", "State", "Nodes", "Limit", "Submitted", "Waited"], found.shown.map((job) => [
        link("job", job.id), user(job.user), partition(job.partition), job.state.replaceAll("_", " "), number(job.nodes), span(job.walltime_s), time(job.submit_s), span(job.wait_s),
      ]), NUMBERS)),
  ];
}

async function comparePage() {
  tell({ unix_time: false, zone: "UTC" });
  const asked = new URLSearchParams(location.search).get("runs")?.split(",").filter(Boolean);
  const served = (await api.get("shown")).filter((one) => one.kind === "run");
  const unknown = (asked ?? []).filter((one) => !served.some((run) => run.name === one));
  const runs = asked ? served.filter((one) => asked.includes(one.name)) : served;
  if (unknown.length) return [section("Not found", element("p", `This server has no run ${unknown.join(", ")}; it has ${served.map((one) => one.name).join(", ")}.`))];
  if (runs.length < 2) return [section("Nothing to compare", element("p", `This server shows ${runs.length === 1 ? "one run" : "no run"}. Serve a folder of several runs.`))];
  const figures = runs.map((run) => new Map(run.figures.map((one) => [one.key, one])));
  const rows = [...new Map(runs.flatMap((run) => run.figures.map((one) => [one.key, one]))).values()].map(({ key, name: metric, better }) => {
    const values = figures.map((of) => of.get(key)?.value ?? null), known = values.filter((one) => one !== null);
    const best = better && new Set(known).size > 1 ? (better === "low" ? Math.min(...known) : Math.max(...known)) : null;
    return [metric, ...runs.map((_, i) => {
      const text = figures[i].get(key)?.text ?? "–", base = values[0];
      const change = i && base && values[i] !== null ? 100 * (values[i] / base - 1) : 0;
      const by = Math.abs(change) < 0.05 ? "" : ` (${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(1)} %)`;
      return best !== null && values[i] === best ? element("b", `${text}${by} ✓`) : text + by;
    })];
  });
  const lines = await Promise.all(runs.map((run) => api.get("lines?bins=300", `${encodeURIComponent(run.name)}/`)));
  const longest = Math.max(...lines.map(({ edges_s: edges }) => edges.at(-1) - edges[0])), edges = Array.from({ length: 301 }, (_, i) => (i / 300) * longest);
  charts = [...new Set(lines.flatMap((one) => one.lines.map((line) => line.name)))].map((metric) => {
    const chart = new Chart(metric, lines.flatMap((one) => one.lines).find((line) => line.name === metric).unit.replace(/^(nodes|cores|jobs)$/, ""));
    chart.set(edges, runs.map((run, i) => {
      const line = lines[i].lines.find((one) => one.name === metric), size = lines[i].edges_s.at(-1) - lines[i].edges_s[0];
      return { name: run.name, values: edges.slice(0, -1).map((at) => (line && at < size ? line.mean[Math.floor((at / size) * line.mean.length)] : null)) };
    }));
    return chart;
  });
  const heads = runs.map((run) => element("a", run.name, { href: `${api.root}${encodeURIComponent(run.name)}/` }));
  const compared = table("Difference from the first run; ✓ marks the best", ["Metric", ...runs.map((run) => run.name)], rows, runs.map((run) => run.name));
  [...compared.querySelectorAll("thead th")].slice(1).forEach((th, i) => replace(th, [heads[i]]));
  return [section("Metrics", compared), section("Over time, from the start of each run", ...charts.flatMap(({ canvas, said }) => [canvas, said]))];
}

// --- the page -----------------------------------------------------------------------------------------

const LIVE = { job: jobPage, node: nodePage, user: groupPage, partition: groupPage, decision: decisionPage, history: historyPage };
const RUN = { job: runJobPage, user: runGroupPage, partition: runGroupPage };

/** Replaces the sections that differ; a link in one keeps the focus. */
function put(sections) {
  charts = [...charts, ...sections.flatMap((one) => one.charts ?? [])];
  const texts = sections.map((one) => one.outerHTML), focus = document.activeElement;
  const same = (one, i) => texts[i] === shown[i] && !one.querySelector("canvas");
  if (sections.length !== shown.length) replace(at("main"), sections);
  else sections.forEach((one, i) => { if (!same(one, i)) at("main").children[i].replaceWith(one); });
  shown = texts;
  if (!focus.isConnected && focus.href) [...document.links].find((one) => one.href === focus.href)?.focus();
}

async function fill(head) {
  last = head;
  if (head?.clock) tell(head.clock);
  const page = kind === "compare" ? comparePage : (head?.kind === "run" ? RUN : LIVE)[kind];
  try {
    me ??= await visitor(kind === "compare" ? [["All clusters and runs", api.root]] : [[head.kind === "run" ? "This run" : "This cluster", api.root], ...(head.kind === "run" ? [] : [["History", `${api.root}history`], ["Last decision", address("decision", head.decision ?? 1)]])]);
    if (!page) throw new Error(`A run has no page of a ${kind}.`);
    put(await page(head?.time_s, head));
    at("standing").textContent = head ? `${head.cluster}, ${head.kind === "run" ? head.workload : zonedClock(head.time_s)}` : "";
  } catch (error) {
    if (error.status === 401) throw error;
    at("standing").textContent = "";
    put([section("Not found", element("p", error.message), element("p", HINTS[kind] ?? "", { class: "hint" }))]);
  }
}

async function* asked() {
  if (kind === "compare") {
    yield await api.get("me");
    await new Promise(() => {});
  }
  let version = null;
  for (;;) {
    const head = await api.get("state");
    // Charts of weeks do not change within seconds, and a reader keeps the place.
    if (version === null || (head.version !== version && kind !== "history")) yield head;
    version = head.version;
    await new Promise((done) => { setTimeout(done, PAUSE); });
  }
}

document.title = `${visible(title)} – hpctwin`;
at("title").textContent = visible(title);
themed(() => charts);
api.begin();
follow(asked, (head) => fill(kind === "compare" ? null : head).catch(() => location.reload()));
