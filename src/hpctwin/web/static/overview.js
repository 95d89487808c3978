// The first screen: is it well, what waits and until when, what does the twin want; and the kill switch.

import * as api from "./api.js";
import { confirmed } from "./confirm.js";
import { clock } from "./clock.js";
import { counted, element, list, number, span } from "./words.js";

const MODES = {
  observe: "only forecasts", advise: "shows decisions, and does not act", approve: "acts on approved decisions", act: "acts by itself",
};

export class Overview {
  /** @param at finds an element by its id. @param told called when the person's role is known. */
  constructor(at, told) {
    Object.assign(this, { at, told });
    this.session = { name: "", role: "viewer", kill_switch: null };
    at("kill").addEventListener("click", () => this.askKill());
  }

  get operator() {
    return this.session.role === "operator";
  }

  async load() {
    this.session = await api.get("me");
    this.showKill();
    this.told();
  }

  /** Whether it is well. */
  showHead(head) {
    const { at } = this, recorded = !head.alive;
    this.head = head;
    document.documentElement.classList.toggle("recorded", recorded);
    at("standing").textContent = recorded ? `Recorded, as of ${clock(head.time_s)}` : head.is_active ? "The twin controls scheduling" : `The twin observes${head.mode === "observe" ? "" : ` (mode ${head.mode})`}`;
    const trouble = head.trouble.length;
    at("health").textContent = recorded ? "No: the twin is not running" : trouble ? `Look: ${counted(trouble, "warning")}` : "Yes";
    at("health").className = trouble || recorded ? "worse" : "better";
    list(at("well"), [
      recorded ? `Last update ${span(head.age_s)} ago. This page shows the last recorded state.` : `The twin runs in mode ${head.mode}: it ${head.killed ? "does nothing until the kill switch is released" : MODES[head.mode] ?? "runs"}.`,
      head.decision === null ? "No decision yet." : `Decision ${head.decision} was made ${span(Math.max(0, head.time_s - head.decided_s))} ${recorded ? "before that" : "ago"}, in ${Math.max(1, Math.round(1000 * head.cycle_s))} ms.`,
      trouble || recorded ? "" : "No warnings.",
    ].filter(Boolean));
    if (head.killed !== this.killed) {
      this.killed = head.killed;
      this.load().catch(() => null);
    }
    this.showKill();
  }

  /** That the server does not answer; the rest of the page stays as it was. */
  showLost() {
    if (!this.head) return;
    this.at("health").textContent = "Unknown: no answer from the server";
    this.at("health").className = "worse";
    list(this.at("well"), [`This page shows the state of ${clock(this.head.time_s)}.`]);
  }

  /** What waits, and until when. */
  showQueue(jobs, head) {
    const pending = jobs.filter((job) => job.state === "waiting"), turn = pending.filter((job) => job.reason === "turn");
    const ahead = pending.filter((job) => job.start_s !== null);
    const least = (list, by) => list.reduce((best, job) => (best === null || by(job) < by(best) ? job : best), null);
    const next = least(ahead, (job) => job.start_s), last = least(ahead, (job) => -job.start_s), longest = least(pending, (job) => job.submit_s);
    const soon = (time) => span(Math.max(0, time - head.time_s));
    this.at("waits").textContent = pending.length ? `${counted(pending.length, "job")} pending` : "Nothing waits";
    const nodes = pending.reduce((sum, job) => sum + job.nodes, 0);
    const free = `${number(head.free_nodes)} of ${counted(head.nodes, "node")} ${head.free_nodes === 1 ? "is" : "are"} free.`;
    list(this.at("waiting"), [
      pending.length ? `They request ${counted(nodes, "node")}; ${free}` : free,
      next && `Next: job ${next.id} in ${soon(next.start_s)}; last: job ${last.id} in ${soon(last.start_s)}, by forecast.`,
      pending.length && !next && "No start is forecast now.",
      longest && `Longest wait so far: ${span(head.time_s - longest.submit_s)}, job ${longest.id}${longest.user ? ` of ${longest.user}` : ""}.`,
      turn.length < pending.length && `${counted(pending.length - turn.length, "job")} cannot start yet: hold, dependency or limit.`,
    ].filter(Boolean));
  }

  /** What the twin wants. @param decision the last one. */
  showDecision(decision, jobs, head) {
    if (!decision) {
      this.at("wants").textContent = "No decision yet";
      list(this.at("wanted"), []);
      return;
    }
    const starts = decision.starts.length, known = new Map(jobs.map((job) => [job.id, job]));
    const nodes = decision.starts.reduce((sum, id) => sum + (known.get(id)?.nodes ?? 0), 0);
    const began = decision.starts.every((id) => known.get(id)?.state !== "waiting");
    const mode = head.alive && !head.killed ? head.mode : "";
    const verb = mode === "act" ? (began ? "Started" : "Starts") : mode === "approve" ? "Wants to start" : head.alive ? "Would start" : "Would have started";
    this.at("wants").textContent = starts ? `${verb} ${counted(starts, "job")}${nodes ? ` on ${counted(nodes, "node")}` : ""}` : mode === "act" ? "Starts no job now" : "Would start no job now";
    const few = decision.starts.slice(0, 6).join(", ");
    list(this.at("wanted"), [
      starts && `Job${starts === 1 ? "" : "s"} ${few}${starts > 6 ? ` and ${starts - 6} more` : ""}.`,
      `Policy: ${decision.policy}${decision.policy === decision.before ? "" : `, before ${decision.before}`}.`,
    ].filter(Boolean));
  }

  showKill() {
    const { kill_switch: thrown } = this.session, button = this.at("kill");
    button.hidden = !this.operator || thrown === null || !this.head?.alive;
    button.textContent = thrown ? "Release the kill switch" : "Stop the twin";
    button.classList.toggle("danger", !thrown);
  }

  async askKill() {
    const thrown = !this.session.kill_switch;
    const text = thrown
      ? "The twin then does nothing to the cluster: no starts, no delays. Its leases expire, and the cluster's own scheduler goes on. Running jobs are not touched."
      : "The twin then acts again as its mode says.";
    const choice = await confirmed({
      title: thrown ? "Stop the twin?" : "Release the kill switch?",
      content: [element("p", text), element("p", `The journal records this with your name, ${this.session.name}.`)],
      choices: [["yes", thrown ? "Activate the kill switch" : "Release the kill switch"]],
    });
    if (!choice) return;
    try {
      const { thrown: now } = await api.send("PUT", "kill-switch", { thrown });
      this.session = { ...this.session, kill_switch: now };
      this.at("kill-said").textContent = now ? "The kill switch is activated." : "The kill switch is released.";
    } catch (error) {
      this.at("kill-said").textContent = `Nothing was changed: ${error.message}`;
    }
    this.showKill();
  }
}
