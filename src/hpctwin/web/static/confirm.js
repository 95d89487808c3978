// A question that must be answered before something is done.

import { element, replace } from "./words.js";

/** @param content elements. @param choices pairs of what is chosen and what its button says.
 * @param watch is given a function that ends all choices but "Cancel", with the reason.
 * @returns what was chosen; empty if nothing. */
export async function confirmed({ title, content, choices, watch }) {
  const dialog = document.getElementById("confirm"), row = element("div", "", { class: "choices" }), said = element("p", "", { role: "status" });
  const buttons = choices.map(([value, text]) => element("button", text, { value }));
  row.append(...buttons, element("button", "Cancel", { value: "", class: "quiet" }));
  const form = element("form", "", { method: "dialog" });
  form.append(element("h2", title, { id: "h-confirm" }), ...content, said, row);
  replace(dialog, [form]);
  watch?.((reason) => {
    said.textContent = reason;
    for (const button of buttons) button.disabled = true;
  });
  dialog.returnValue = "";
  dialog.showModal();
  row.lastChild.focus();
  await new Promise((done) => { dialog.addEventListener("close", done, { once: true }); });
  return dialog.returnValue;
}
