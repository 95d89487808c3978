// The list of clusters and runs that are served together.

import * as api from "./api.js";
import { follow, themed, visitor } from "./frame.js";
import { element, replace } from "./words.js";

const EVERY = 2000;

async function* asked() {
  for (;;) {
    yield await api.get("shown");
    await new Promise((done) => { setTimeout(done, EVERY); });
  }
}

function card(one) {
  const made = element("section", "", { "aria-label": one.title }), heading = element("h2"), figures = element("dl", "", { class: "figures" });
  heading.append(element("a", one.title, { href: `${encodeURIComponent(one.name)}/` }));
  for (const { name, text } of one.figures) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", text));
    figures.append(pair);
  }
  made.append(heading, element("p", `${one.kind === "twin" ? "a live cluster" : "a simulated run"}, ${one.name}`, { class: "hint" }), figures);
  if (one.trouble.length) made.append(element("p", one.trouble.join("; "), { class: "worse" }));
  return made;
}

let last = "";

themed(() => []);
api.begin();
follow(asked, (all) => {
  document.getElementById("standing").textContent = `${all.length} clusters and runs`;
  if (JSON.stringify(all) === last) return;
  if (!last) visitor(all.filter(({ kind }) => kind === "run").length > 1 ? [["Compare the runs", "compare"]] : []).catch(() => null);
  last = JSON.stringify(all);
  replace(document.getElementById("main"), all.map(card));
});
