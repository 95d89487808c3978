// What a person has chosen (filters, sort, columns) is in the address, so that it can be linked.

const PAUSE = 250;
let wanted = {}, due = null;

export function chosen(name) {
  return wanted[name] ?? new URLSearchParams(location.search).get(name) ?? "";
}

/** Writes values into the address, empty ones not; in one step, as browsers limit the number of steps. */
export function choose(values) {
  Object.assign(wanted, values);
  due ??= setTimeout(() => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(wanted)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    wanted = {};
    due = null;
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
  }, PAUSE);
}
