// Scores of the candidates over time, and below them which policy ruled when.

import { clock, number, prepared, theme } from "./words.js";

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2], [1, 2]];
const LEFT = 6, STRIP = 14, KEYS = 18;

export class Scores {
  constructor(canvas, said) {
    this.canvas = canvas;
    this.said = said;
    this.decisions = [];
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** @param decisions newest first. */
  set(decisions) {
    this.decisions = [...decisions].reverse();
    const ruled = new Map();
    for (const one of this.decisions) ruled.set(one.policy, (ruled.get(one.policy) ?? 0) + 1);
    const shares = [...ruled].map(([policy, count]) => `${policy} in ${count}`).join(", ");
    this.said.textContent = this.decisions.length
      ? `Of the last ${this.decisions.length} decisions, since ${clock(this.decisions[0].time_s)}: ${shares}. A lower line is better; the strip below shows the active policy.` : "";
    this.draw();
  }

  draw() {
    const { context, width, height } = prepared(this.canvas);
    const colours = theme();
    const shown = this.decisions;
    if (shown.length < 2) return;
    const policies = [...new Set(shown.flatMap((one) => one.candidates.map((c) => c.policy)))];
    const scores = shown.flatMap((one) => (one.candidates.length > 1 ? one.candidates.map((c) => c.score) : []));
    const low = Math.min(...scores), high = Math.max(...scores);
    const x = (i) => LEFT + (i / (shown.length - 1)) * (width - 2 * LEFT);
    const deep = height - STRIP - KEYS - 8;
    const y = (score) => KEYS + (high > low ? (1 - (score - low) / (high - low)) * deep : deep / 2);
    context.font = "11px system-ui, sans-serif";
    let key = LEFT;
    policies.forEach((policy, k) => {
      context.strokeStyle = context.fillStyle = COLOURS[k % COLOURS.length];
      context.lineWidth = 2;
      context.setLineDash(DASHES[k % DASHES.length]);
      context.beginPath();
      context.moveTo(key, 9);
      context.lineTo(key + 20, 9);
      let drawn = false;
      shown.forEach((one, i) => {
        const found = one.candidates.length > 1 && one.candidates.find((c) => c.policy === policy);
        if (!found) return;
        if (drawn) context.lineTo(x(i), y(found.score));
        else context.moveTo(x(i), y(found.score));
        drawn = true;
      });
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colours.text;
      context.fillText(policy, key + 24, 13);
      key += 36 + context.measureText(policy).width;
    });
    shown.forEach((one, i) => {
      context.fillStyle = COLOURS[policies.indexOf(one.policy) % COLOURS.length];
      context.fillRect(x(i), height - STRIP, (width - 2 * LEFT) / (shown.length - 1) + 1, STRIP - 2);
    });
    context.fillStyle = colours.dim;
    if (scores.length) {
      context.fillText(number(high), LEFT, KEYS + 11);
      context.fillText(number(low), LEFT, KEYS + deep);
    }
  }
}
