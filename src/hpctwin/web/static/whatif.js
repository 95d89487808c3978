// Both futures side by side.

import { send } from "./api.js";
import { Gantt } from "./gantt.js";
import { legend } from "./colours.js";
import { given } from "./pictures.js";
import { counted, element, figure, replace, span } from "./words.js";

/** Groups of jobs in both pictures, by what the change means for them. */
const GROUPS = ["starts earlier", "starts later", "as before", "your job"], RUNNING = 4;
const TINTS = ["#0072b2", "#d55e00", "#b9b9b9", "#cc79a7", "#6b6b6b"];
const MOST = 10, SAME_S = 1;

const SHOWN = {
  mean_wait_s: "mean wait", max_wait_s: "longest wait", mean_bounded_slowdown: "mean bounded slowdown",
  mean_turnaround_s: "mean turnaround", makespan_s: "time until all jobs have ended", utilization: "utilization",
};
const LARGER_IS_BETTER = new Set(["utilization"]);

export class WhatIf {
  constructor(form) {
    this.form = form;
    this.said = document.getElementById("whatif-said");
    this.charts = ["as-is", "changed"].map((id) => new Gantt(document.getElementById(id)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  change() {
    const value = (name) => this.form.elements[name].value.trim();
    const nodes = (name) => (value(name) ? [value(name)] : []);
    const change = {};
    if (value("policy")) change.policy = value("policy");
    if (value("drain")) change.drain = nodes("drain");
    if (value("add_nodes")) change.add_nodes = Number(value("add_nodes"));
    if (value("cap_kw")) change.cap_w = 1000 * Number(value("cap_kw"));
    if (value("job_nodes")) change.job = { nodes: Number(value("job_nodes")), walltime_s: 3600 * Number(value("job_hours")) };
    if (value("reserve_hours")) {
      change.reserve = { for_s: 3600 * Number(value("reserve_hours")), in_s: 3600 * Number(value("reserve_in") || 0), nodes: nodes("reserve_nodes") };
    }
    return change;
  }

  async ask() {
    this.said.textContent = "Simulating …";
    try {
      this.show(await send("POST", "what-if", this.change()));
    } catch (error) {
      document.getElementById("futures").hidden = true;
      this.said.textContent = error.message;
    }
  }

  show(answer) {
    const { as_is: before, changed: after } = answer;
    const pretend = answer.pretend && after.starts[answer.pretend];
    this.said.textContent = `Simulated in ${Math.max(1, Math.round(1000 * answer.took_s))} ms.`
      + (answer.pretend ? (pretend === undefined ? " The job would never start." : ` The job would start in ${span(pretend - answer.time_s)}.`) : "");
    const rows = Object.entries(SHOWN).map(([key, name]) => {
      const row = element("tr");
      const by = after.metrics[key] - before.metrics[key];
      const better = LARGER_IS_BETTER.has(key) ? by > 0 : by < 0;
      const same = Math.abs(by) <= 1e-9 * Math.max(1, Math.abs(before.metrics[key]));
      row.append(
        element("th", name, { scope: "row" }),
        element("td", figure(before.metrics[key], before.units[key]), { class: "n" }),
        element("td", figure(after.metrics[key], after.units[key]), { class: "n" }),
        element("td", same ? "the same" : `${by < 0 ? "▼" : "▲"} ${better ? "better" : "worse"} by ${figure(Math.abs(by), before.units[key])}`, { class: same ? "" : better ? "better" : "worse" }),
      );
      return row;
    });
    replace(document.querySelector("#compared tbody"), rows);
    const shown = document.getElementById("futures");
    shown.hidden = false;
    this.list(moved(before, after, answer.pretend), answer.time_s);
    const groups = grouped(before, after, answer.pretend);
    const end = Math.max(...[...before.bars, ...after.bars].map((bar) => bar.end_s), answer.time_s + 60);
    [before, after].forEach((future, i) => {
      this.charts[i].set(given(future.bars, { ...groups, colours: TINTS, marked: answer.pretend }), { lanes: future.lanes, of: future.lanes > answer.nodes[i] ? "core" : "node", from_s: answer.time_s, to_s: end, now_s: answer.time_s });
      this.charts[i].look(answer.time_s, end);
      const never = future.never ? `; ${counted(future.never, "job")} would never start` : "";
      document.getElementById(["f-as-is", "f-changed"][i]).textContent = `${["Unchanged", "Changed"][i]}: ${future.policy}, ${answer.nodes[i]} nodes${never}`;
    });
  }

  /** Which jobs gain and which lose, the most first. */
  list({ earlier, later, never, again }, now) {
    const counts = [[earlier.length, "earlier"], [later.length, "later"], [never.length, "never"], [again.length, "again"]];
    const told = counts.filter(([count]) => count).map(([count, how]) => `${how}: ${counted(count, "job")}`);
    document.getElementById("moved-said").textContent = told.length ? `Starts ${told.join(", ")}.` : "No job starts at another time.";
    const rows = [
      ...again.map((job) => [job.id, "starts again", null, job.after]), ...never.map((job) => [job.id, "never starts", job.before, null]),
      ...later.slice(0, MOST).map((job) => [job.id, `${span(job.by)} later`, job.before, job.after]),
      ...earlier.slice(0, MOST).map((job) => [job.id, `${span(-job.by)} earlier`, job.before, job.after]),
    ];
    const starts = (time) => (time === null ? "never" : `in ${span(Math.max(0, time - now))}`);
    replace(document.querySelector("#moved tbody"), rows.map(([id, how, from, to]) => {
      const row = element("tr");
      row.append(element("th", id, { scope: "row" }), element("td", how, { class: how.endsWith("earlier") || to !== null && from === null ? "better" : "worse" }));
      for (const time of [from, to]) row.append(element("td", starts(time), { class: "n" }));
      return row;
    }));
    document.getElementById("moved").hidden = !rows.length;
    legend(document.getElementById("moved-legend"), { boxes: true, legend: [...GROUPS, "running"] }, TINTS);
  }
}

/** Jobs that start at another time than before: each with both starts; those that move most first. */
export function moved(before, after, pretend) {
  const both = [...new Set([...Object.keys(before.starts), ...Object.keys(after.starts)])].filter((id) => id !== pretend)
    .map((id) => ({ id, before: before.starts[id] ?? null, after: after.starts[id] ?? null }));
  const known = both.filter((job) => job.before !== null && job.after !== null).map((job) => ({ ...job, by: job.after - job.before }));
  return {
    earlier: known.filter((job) => job.by < -SAME_S).sort((a, b) => a.by - b.by),
    later: known.filter((job) => job.by > SAME_S).sort((a, b) => b.by - a.by),
    never: both.filter((job) => job.after === null), again: both.filter((job) => job.before === null),
  };
}

function grouped(before, after, pretend) {
  const { earlier, later, never, again } = moved(before, after, pretend);
  const group = new Map([...[...earlier, ...again].map((job) => [job.id, 0]), ...[...later, ...never].map((job) => [job.id, 1]), [pretend, 3]]);
  return { groupOf: (bar) => (bar.kind === "runs" ? RUNNING : group.get(bar.job) ?? 2), legend: [...GROUPS, "running"] };
}
