// The queue and the running jobs as tables, with filters.

import { clock } from "./clock.js";
import { Filters } from "./filters.js";
import { address } from "./links.js";
import { Table } from "./table.js";
import { counted, number, span } from "./words.js";

/** @param now present time by the cluster's clock. @param open what a click on a job does. */
function described(now, open) {
  const soon = (time) => (time === null ? "–" : span(Math.max(0, time - now())));
  return {
    job: { id: "job", title: "Job", value: (job) => job.id, width: "minmax(8ch, 1fr)", open: (job) => open(job.id) },
    user: { id: "user", title: "User", value: (job) => job.user, link: (job) => address("user", job.user), width: "minmax(7ch, 1fr)", optional: true },
    account: { id: "account", title: "Account", value: (job) => job.account, width: "minmax(9ch, 1fr)", extra: true },
    partition: { id: "partition", title: "Partition", value: (job) => job.partition, link: (job) => address("partition", job.partition), width: "minmax(9ch, 1fr)", optional: true },
    qos: { id: "qos", title: "QOS", value: (job) => job.qos, width: "minmax(7ch, 1fr)", extra: true },
    nodes: { id: "nodes", title: "Nodes", value: (job) => job.nodes, text: (job) => number(job.nodes), width: "8ch", number: true },
    limit: { id: "limit", title: "Limit", value: (job) => job.walltime_s, text: (job) => span(job.walltime_s), width: "13ch", number: true },
    submit: { id: "submit", title: "Submitted", value: (job) => job.submit_s, text: (job) => clock(job.submit_s), width: "24ch", extra: true },
    wait: { id: "wait", title: "Waiting", value: (job) => job.wait_s, text: (job) => span(job.wait_s), width: "13ch", number: true },
    start: { id: "start", title: "Starts in", value: (job) => job.start_s, text: (job) => soon(job.start_s), width: "13ch", number: true },
    within: { id: "within", title: "Probably within", value: (job) => job.high_s, text: (job) => (job.low_s === null ? "–" : `${soon(job.low_s)} … ${soon(job.high_s)}${job.calibrated ? "" : " ?"}`), width: "26ch" },
    reason: { id: "reason", title: "Reason", value: (job) => job.why, width: "minmax(22ch, 3fr)" },
    began: { id: "start", title: "Started", value: (job) => job.start_s, text: (job) => `${span(now() - job.start_s)} ago`, width: "17ch", number: true },
    ends: { id: "end", title: "Ends within", value: (job) => job.end_s, text: (job) => soon(job.end_s), width: "13ch", number: true },
    waited: { id: "wait", title: "Waited", value: (job) => job.wait_s, text: (job) => span(job.wait_s), width: "13ch", number: true },
    where: { id: "where", title: "On nodes", value: (job) => job.node_list, width: "minmax(18ch, 3fr)" },
  };
}

export class Jobs {
  /** @param at finds an element by its id. @param open what a click on a job does. */
  constructor(at, open) {
    this.at = at;
    this.all = [];
    this.time = 0;
    const all = described(() => this.time, open), key = (job) => job.id;
    const pick = (...names) => names.map((name) => all[name]);
    this.pending = new Table(at("queue"), {
      label: "Pending jobs", key, sort: "start", kind: "jobs", empty: "No pending job.",
      columns: pick("job", "user", "account", "partition", "qos", "nodes", "limit", "submit", "wait", "start", "within", "reason"),
    });
    this.running = new Table(at("running"), {
      label: "Running jobs", name: "running.", key, sort: "end", kind: "jobs", empty: "No running job.",
      columns: pick("job", "user", "account", "partition", "qos", "nodes", "limit", "submit", "waited", "began", "ends", "where"),
    });
    this.filters = new Filters(at("filters"), at("filters-said"), () => this.show(true));
    const wide = matchMedia("(min-width: 761px)");
    const unfold = () => { at("more-filters").open = wide.matches || this.filters.count > 0; };
    wide.addEventListener("change", unfold);
    unfold();
  }

  /** @param jobs as `/jobs` has them. @param time of the cluster's clock. */
  set(jobs, time) {
    this.all = jobs;
    this.time = time;
    for (const job of jobs) job.wait_s = (job.state === "running" ? job.start_s : time) - job.submit_s;
    this.filters.offer(jobs);
    this.show();
  }

  show(asked = false) {
    const texts = [[this.pending, "waiting", "pending"], [this.running, "running", "running"]].map(([table, state, what]) => {
      const mine = this.all.filter((job) => job.state === state), found = mine.filter((job) => this.filters.passes(job));
      table.set(found, asked);
      const total = counted(mine.length, `${what} job`);
      table.count.textContent = this.filters.count ? `${number(found.length)} of ${total}` : total;
      return table.count.textContent;
    });
    // Only what a person has asked for is read out.
    if (asked) this.at("found").textContent = texts.join(", ");
  }
}
