// Talking to the server: every request carries the token; nothing else leaves the page.

const KEY = "hpctwin-token";
const MOST_KNOWN = 16, known = new Map();
let token = "";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
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
  throw new Refused(response.status, detail);
}

/** What a path answers; an answer that has not changed is not sent again. */
export async function get(path) {
  const before = known.get(path);
  const response = await request(`api/v1/${path}`, { headers: before ? { "If-None-Match": before.tag } : {} });
  if (response.status === 304) return before.body;
  const body = await response.json();
  known.delete(path);
  known.set(path, { tag: response.headers.get("ETag"), body });
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return body;
}

export async function bytes(path) {
  return (await request(`api/v1/${path}`)).arrayBuffer();
}

export async function send(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(`api/v1/${path}`, { method, headers, body: JSON.stringify(body) })).json();
}

/** Server-sent events, each as it comes; ends when the connection does. */
export async function* events(path) {
  const response = await request(`api/v1/${path}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
      text = text.slice(end + 2);
      if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
    }
  }
}
