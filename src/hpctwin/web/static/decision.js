// What the twin wants: its last decision, the candidates, and the approval of a person.

import * as api from "./api.js";
import { zoned } from "./clock.js";
import { confirmed } from "./confirm.js";
import { link } from "./links.js";
import { Table } from "./table.js";
import { counted, element, number, replace, span } from "./words.js";

const LISTED = 5;

function value(name, one) {
  return name.endsWith("_s") ? span(one) : number(one);
}

function named(metric) {
  return metric.replace(/_s$/, "").replaceAll("_", " ");
}

export class Decisions {
  /** @param at finds an element by its id. @param scores chart of the last decisions. @param jobs those that are shown. */
  constructor(at, scores, jobs) {
    Object.assign(this, { at, scores, jobs });
    this.operator = false;
    this.awaiting = [];
    this.asked = null;
    this.last = null;
    this.table = new Table(at("candidates"), {
      label: "Candidates of the last decision", name: "policies.", key: (one) => one.policy, sort: "score",
      mark: (one) => (one.policy === this.chosen?.policy ? "chosen" : ""), empty: "No decision yet.",
    });
  }

  /** The last decisions, newest first. */
  async load() {
    const last = await api.get("decisions?limit=200");
    this.scores.set(last);
    [this.last] = last;
    if (!this.last) {
      this.table.set([]);
      return;
    }
    this.chosen = this.last.candidates.length > 1 ? this.last : last.find((one) => one.candidates.length > 1) ?? this.last;
    const told = await api.get(`decisions/${this.chosen.id}/explain`);
    replace(this.at("explained"), [...told.why.map((line) => element("p", zoned(line))), link("decision", this.chosen.id, `Page of decision ${this.chosen.id}`)]);
    const names = Object.keys(this.chosen.candidates[0].metrics), longest = Math.max(...this.chosen.candidates.map((one) => one.policy.length));
    if (this.names !== [longest, ...names].join()) {
      this.names = [longest, ...names].join();
      this.table.setColumns([
        { id: "policy", title: "Policy", value: (one) => one.policy, text: (one) => (one.policy === this.chosen.policy ? "✓ " : "") + one.policy, width: `min(${longest + 4}ch, 55vw)` },
        { id: "score", title: "Score", value: (one) => one.score, text: (one) => number(one.score), number: true, width: "9ch" },
        ...names.map((name) => ({ id: name, title: named(name), value: (one) => one.metrics[name], text: (one) => value(name, one.metrics[name]), number: true, width: `${Math.max(named(name).length, 7) + 4}ch` })),
        { id: "starts", title: "Starts now", value: (one) => one.starts, number: true, width: "13ch" },
        { id: "never", title: "Never start", value: (one) => one.never, number: true, width: "13ch", extra: true },
      ]);
    }
    this.table.set(this.chosen.candidates);
  }

  /** @param head state of the twin. @param operator whether this person may approve. */
  showWaiting(head, operator) {
    this.operator = operator;
    this.awaiting = head.awaiting;
    const place = this.at("approval"), known = JSON.stringify([head.awaiting, operator]);
    if (this.asked !== null && !head.awaiting.includes(this.asked)) this.lapsed?.();
    if (known === this.known) return;
    this.known = known;
    place.hidden = !head.awaiting.length;
    const buttons = head.awaiting.slice(0, LISTED).map((id, i) => {
      const button = element("button", i ? String(id) : `Review decision ${id}`, { type: "button", "aria-label": `Review decision ${id}` });
      button.addEventListener("click", () => this.review(id));
      return button;
    });
    const count = head.awaiting.length, more = count > LISTED ? ` and ${count - LISTED} more` : "";
    const text = `${count === 1 ? `Decision ${head.awaiting[0]} awaits` : `${count} decisions${more ? `, ${LISTED} shown,` : ""} await`} approval${operator ? "." : " by an operator."}`;
    replace(place, [element("p", text), ...(operator ? buttons : [])]);
  }

  say(text) {
    this.at("approval-said").textContent = text;
  }

  /** Asks about one decision by its number; what is shown stays, whatever the twin decides meanwhile. */
  async review(id) {
    if (this.asked !== null) return;
    this.asked = id;
    try {
      const decision = await api.get(`decisions/${id}`);
      const choice = await confirmed({
        title: `Decision ${id}`, content: this.content(decision),
        choices: [["approved", `Approve decision ${id}`], ["rejected", `Reject decision ${id}`]],
        watch: (lapsed) => { this.lapsed = () => lapsed(`Decision ${id} no longer awaits approval${this.awaiting.length ? `; decision ${this.awaiting[0]} does` : ""}.`); },
      });
      if (!choice) return;
      this.say(`Sending: ${choice} …`);
      await api.send("POST", `decisions/${id}/approval`, { approved: choice === "approved" });
      this.say(choice === "approved" ? `Approved: decision ${id}. The twin requests its starts now.` : `Rejected: decision ${id}. Its jobs stay pending.`);
    } catch (error) {
      this.say(`Nothing was changed: ${error.message}`);
    } finally {
      this.asked = null;
      this.lapsed = null;
    }
  }

  /** What a decision starts, and what it changes. */
  content(decision) {
    const known = new Map(this.jobs.all.map((job) => [job.id, job])), starts = decision.starts.map((id) => known.get(id) ?? { id });
    const nodes = starts.reduce((sum, job) => sum + (job.nodes ?? 0), 0);
    const parts = [element("p", `Starts ${number(decision.starts.length)} of ${counted(decision.waiting, "pending job")} on ${counted(nodes, "node")}; ${number(decision.free_nodes)} were free at the decision.`)];
    const table = element("table", "", { class: "plain" }), head = element("tr");
    for (const [text, right] of [["Job"], ["User"], ["Nodes", 1], ["Limit", 1], ["Waiting", 1]]) head.append(element("th", text, { scope: "col", class: right ? "n" : "" }));
    table.append(element("caption", "Jobs to start"), head);
    for (const job of starts) {
      const row = element("tr");
      row.append(element("th", job.id, { scope: "row" }), element("td", job.user ?? "no longer pending"));
      for (const text of [number(job.nodes), span(job.walltime_s), span(job.wait_s)]) row.append(element("td", String(text), { class: "n" }));
      table.append(row);
    }
    const scroll = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Jobs to start" });
    scroll.append(table);
    parts.push(scroll);
    const mine = decision.candidates.find((one) => one.policy === decision.policy), now = decision.candidates.find((one) => one.policy === decision.before);
    if (!now || now === mine) parts.push(element("p", `The policy stays ${decision.policy}.`));
    else {
      parts.push(element("p", `The policy changes from ${decision.before} to ${decision.policy}:`));
      const changes = Object.keys(mine.metrics).filter((name) => mine.metrics[name] !== now.metrics[name]);
      const list = element("ul");
      list.append(...changes.map((name) => element("li", `${named(name)} ${value(name, mine.metrics[name])} instead of ${value(name, now.metrics[name])}`)));
      parts.push(list);
    }
    return parts;
  }
}
