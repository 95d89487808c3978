// Talking to the server: every request carries the token; nothing else leaves the page.

const KEY = "hpctwin-token";
/** A stream without a byte for this long, in ms, is given up; the server sends some every 15 s. */
const SILENCE = 45000;
const MOST_KNOWN = 16, known = new Map();
let token = "";

/** Where the pages of this cluster or run begin: "/", or "/NAME/" on a server of several. */
export const root = /^(.*?\/)(?:(?:job|node|user|partition|decision)\/.*|history|compare)?$/.exec(location.pathname)?.[1] ?? "/";

// A new tab asks the others for the token, which no tab stores beyond its own life.
const tabs = new BroadcastChannel(KEY);
tabs.addEventListener("message", ({ data }) => { if (data === "token?" && token) tabs.postMessage({ token }); });

/** The token of another tab of this page, or "". */
export function ofOtherTab() {
  return new Promise((done) => {
    const told = ({ data }) => { if (data.token) done(data.token); };
    tabs.addEventListener("message", told);
    tabs.postMessage("token?");
    setTimeout(() => {
      tabs.removeEventListener("message", told);
      done("");
    }, 200);
  });
}

export class Refused extends Error {
  constructor(status, detail, signIn = null) {
    super(detail);
    this.status = status;
    this.signIn = signIn;
  }
}

/** Takes the token from the address, where it does not stay. */
export function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname + location.search);
  use(given || sessionStorage.getItem(KEY) || "");
}

export function use(given) {
  token = given;
  sessionStorage.setItem(KEY, given);
}

async function request(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok || response.status === 304) return response;
  let detail = response.statusText;
  try {
    detail = (await response.json()).detail;
  } catch {
    // The status says it.
  }
  throw new Refused(response.status, detail, response.headers.get("x-hpctwin-sign-in"));
}

/** What a path answers; an answer that has not changed is not sent again.
 *  @param part another cluster or run of this server, such as "east/". */
export async function get(path, part = "") {
  const url = `${root}${part}api/v1/${path}`;
  const before = known.get(url);
  const response = await request(url, { headers: before ? { "If-None-Match": before.tag } : {} });
  if (response.status === 304) return before.body;
  const body = await response.json();
  known.delete(url);
  known.set(url, { tag: response.headers.get("ETag"), body });
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return body;
}

export async function signOut() {
  use("");
  await request("/sign-out", { method: "POST" });
}

export async function bytes(path) {
  return (await request(`${root}api/v1/${path}`)).arrayBuffer();
}

export async function send(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(`${root}api/v1/${path}`, { method, headers, body: JSON.stringify(body) })).json();
}

/** Server-sent events, each as it comes; ends when the connection does, and fails if the server is silent. */
export async function* events(path) {
  const silent = new AbortController();
  let timer = null;
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENCE);
  };
  listen();
  try {
    const response = await request(`${root}api/v1/${path}`, { signal: silent.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      listen();
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
        text = text.slice(end + 2);
        if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
      }
    }
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}
