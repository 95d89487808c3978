// What all pages have: asking for a token, dark and light, and being told of changes.

import * as api from "./api.js";
import { element, replace } from "./words.js";

const at = (id) => document.getElementById(id);
const THEME = "hpctwin-theme";
let refused = "";

/** Names the visitor in the header, and links the other pages.
 * @param links pairs of a text and an address. */
export async function visitor(links) {
  const me = await api.get("me");
  const nav = element("nav", "", { "aria-label": "Pages", class: "pages" });
  const all = [...(me.listed ? [["All clusters and runs", `${api.root}../`]] : []), ...links];
  for (const [text, href] of all) nav.append(element("a", text, { href }));
  if (me.name && me.name !== "(made up)") {
    nav.append(element("span", `${me.name} (${me.role})`));
    if (me.sign_in) {
      const button = element("button", "Sign out", { type: "button" });
      button.addEventListener("click", () => api.signOut().then(() => location.reload()));
      nav.append(button);
    }
  }
  document.querySelector("header nav.pages")?.remove();
  if (nav.children.length) document.querySelector("header .ways").append(nav);
  return me;
}

async function askToken(signIn) {
  const known = await api.ofOtherTab();
  if (known && known !== refused) {
    refused = known;
    api.use(known);
    return;
  }
  if (signIn) {
    const to = encodeURIComponent(location.pathname + location.search);
    replace(at("token-why"), [element("a", "Sign in", { href: `${signIn}?to=${to}`, autofocus: "" }), " with your account, or give a token."]);
  }
  at("ask-token").showModal();
  await new Promise((done) => { at("ask-token").addEventListener("close", done, { once: true }); });
  api.use(at("token").value.trim());
  at("token").value = "";
}

/** Goes on for ever: whenever the server tells of something, or `every` milliseconds, `told` is called.
 * @param ask gives what is told, one after the other. @param lost called when the server does not answer. */
export async function follow(ask, told, lost = () => {}) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      for await (const one of ask()) {
        pause = 500;
        told(one);
      }
    } catch (error) {
      if (error.status === 401) {
        await askToken(error.signIn);
        continue;
      }
      at("standing").textContent = error.status ? error.message : "No answer from the server; trying again …";
      lost();
    }
    await new Promise((done) => { setTimeout(done, pause); });
  }
}

/** @param drawn charts to draw again in other colours. */
export function themed(drawn) {
  const use = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    const dark = name ? name === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    at("theme-name").textContent = dark ? "dark" : "light";
    for (const one of drawn()) one.draw();
    return dark;
  };
  at("theme").addEventListener("click", () => {
    const name = use(document.documentElement.dataset.theme) ? "light" : "dark";
    localStorage.setItem(THEME, name);
    use(name);
  });
  use(localStorage.getItem(THEME));
}
