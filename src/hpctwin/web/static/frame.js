// What all pages have: asking for a token, dark and light, and being told of changes.

import * as api from "./api.js";

const at = (id) => document.getElementById(id);
const THEME = "hpctwin-theme";

async function askToken() {
  at("ask-token").showModal();
  await new Promise((done) => { at("ask-token").addEventListener("close", done, { once: true }); });
  api.use(at("token").value.trim());
  at("token").value = "";
}

/** Goes on for ever: whenever the server tells of something, or `every` milliseconds, `told` is called.
 * @param ask gives what is told, one after the other. */
export async function follow(ask, told) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      for await (const one of ask()) {
        pause = 500;
        told(one);
      }
    } catch (error) {
      if (error.status === 401) {
        await askToken();
        continue;
      }
      at("standing").textContent = error.status ? error.message : "No answer from the server; trying again …";
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
