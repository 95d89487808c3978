// Scores of the candidates over time, and below them which policy ruled when.

import { LEFT, placed, ROW } from "./boxes.js";
import { clock } from "./clock.js";
import { COLOURS } from "./colours.js";
import { number, prepared, theme } from "./words.js";

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2], [1, 2]];
const STRIP = 14, LEAST = 70;

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
    this.canvas.hidden = this.decisions.length < 2;
    const ruled = new Map();
    for (const one of this.decisions) ruled.set(one.policy, (ruled.get(one.policy) ?? 0) + 1);
    const shares = [...ruled].map(([policy, count]) => `${policy} in ${count}`).join(", ");
    this.said.textContent = this.decisions.length > 1
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
    context.font = "11px system-ui, sans-serif";
    const keys = placed(context, policies, width), top = keys.at(-1).y + ROW, needed = top + LEAST + STRIP + 8;
    if (height < needed) {
      // The change of size draws again.
      this.canvas.style.height = `${needed}px`;
      return;
    }
    const wide = Math.max(...[low, high].map((one) => context.measureText(number(one)).width));
    const left = LEFT + (scores.length ? wide + 6 : 0), deep = height - STRIP - top - 8;
    const x = (i) => left + (i / (shown.length - 1)) * (width - left - LEFT);
    const y = (score) => top + (high > low ? (1 - (score - low) / (high - low)) * deep : deep / 2);
    policies.forEach((policy, k) => {
      const { x: key, y: line } = keys[k];
      context.strokeStyle = context.fillStyle = COLOURS[k % COLOURS.length];
      context.lineWidth = 2;
      context.setLineDash(DASHES[k % DASHES.length]);
      context.beginPath();
      context.moveTo(key, line + 9);
      context.lineTo(key + 20, line + 9);
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
      context.fillText(policy, key + 24, line + 13);
    });
    shown.forEach((one, i) => {
      context.fillStyle = COLOURS[policies.indexOf(one.policy) % COLOURS.length];
      context.fillRect(x(i), height - STRIP, (width - left - LEFT) / (shown.length - 1) + 1, STRIP - 2);
    });
    context.fillStyle = colours.dim;
    if (scores.length) {
      context.fillText(number(high), LEFT, top + 8);
      context.fillText(number(low), LEFT, top + deep);
    }
  }
}
