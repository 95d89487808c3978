// Addresses of the pages about one thing.

import { root } from "./api.js";
import { element } from "./words.js";

export function address(kind, name) {
  return `${root}${kind}/${encodeURIComponent(name)}`;
}

/** @param kind job, node, user, partition or decision. */
export function link(kind, name, text = name) {
  return name === "" || name === null ? element("span", "–") : element("a", String(text), { href: address(kind, name) });
}
