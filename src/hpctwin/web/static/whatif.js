// Both futures side by side.

import { send } from "./api.js";
import { Gantt } from "./gantt.js";
import { given } from "./pictures.js";
import { element, figure, replace, span } from "./words.js";

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
      this.said.textContent = error.message;
    }
  }

  show(answer) {
    const { as_is: before, changed: after } = answer;
    const pretend = answer.pretend && after.starts[answer.pretend];
    this.said.textContent = `Simulated in ${Math.max(1, Math.round(answer.took_ms))} ms.`
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
        element("td", same ? "the same" : `${better ? "▼ better" : "▲ worse"} by ${figure(Math.abs(by), before.units[key])}`, { class: same ? "" : better ? "better" : "worse" }),
      );
      return row;
    });
    replace(document.querySelector("#compared tbody"), rows);
    const shown = document.getElementById("futures");
    shown.hidden = false;
    const end = Math.max(...[...before.bars, ...after.bars].map((bar) => bar.end_s), answer.time_s + 60);
    [before, after].forEach((future, i) => {
      this.charts[i].set(given(future.bars), { lanes: future.lanes, of: future.lanes > answer.nodes[i] ? "core" : "node", from_s: answer.time_s, to_s: end, now_s: answer.time_s });
      this.charts[i].look(answer.time_s, end);
      const never = future.never ? `; ${future.never} jobs would never start` : "";
      document.getElementById(["f-as-is", "f-changed"][i]).textContent = `${["Unchanged", "Changed"][i]}: ${future.policy}, ${answer.nodes[i]} nodes${never}`;
    });
  }
}
