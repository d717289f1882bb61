/** The bar at the bottom: how many images are selected, and what can be done with them. */

import { addClass, label, labelAsNew, nothingChosen, skip } from "./changes.js";
import { pickClass } from "./dialogs.js";
import { button, count, h, refill } from "./dom.js";
import { NONE, store } from "./store.js";

const MOST = 9;
const LONG = 10;  // characters of a name that gives way to shorter ones

/** Label what a screen's next key is about, by a class, NONE or null. */
export async function labelTargets(screen, classId) {
  const rows = screen.targets();
  if (!rows.length) return nothingChosen();
  const done = label(rows, classId, screen.source);
  screen.answered?.(rows);
  await done;
  return null;
}

export async function labelByName(screen) {
  const rows = screen.targets?.() ?? [];
  const picked = await pickClass(rows.length ? `Label ${count(rows.length, "image")} as …` : "A new class");
  if (!picked) return;
  if (!rows.length) {
    if (picked.id === null) await addClass(picked.name);
    return;
  }
  if (picked.id === null) {
    if (await labelAsNew(rows, picked.name, screen.source) !== null) screen.answered?.(rows);
    return;
  }
  const done = label(rows, picked.id, screen.source);
  screen.answered?.(rows);
  await done;
}

export async function skipTargets(screen) {
  const rows = screen.targets();
  if (!rows.length) return nothingChosen();
  const done = skip(rows);
  screen.answered?.(rows);
  await done;
  return null;
}

/** Draw the bar for a screen with images; without one it is hidden. */
export function drawBar(screen) {
  const bar = document.getElementById("bar");
  bar.hidden = !screen?.targets || !(screen.view || screen.framed || screen.grids.some((grid) => grid.source.total));
  document.body.classList.toggle("with-bar", !bar.hidden);
  if (bar.hidden) return;
  const size = screen.selection.size;
  const framed = screen.framed ?? (screen.grid && screen.grid.activeRow !== null ? "The framed image" : "No image is selected");
  const text = size ? `${count(size, "image")} selected` : framed;
  const shown = store.classes.slice(0, MOST);
  const state = JSON.stringify([text, shown.map((one) => [one.id, one.name]), store.classes.length, screen.number, screen.suggestion?.(null)]);
  if (bar.dataset.state === state) return;
  bar.dataset.state = state;
  const more = store.classes.length > MOST ? `${store.classes.length - MOST} more, or new …` : "New class …";
  refill(bar,
    h("div.about", {}, h("strong", { "aria-live": "polite" }, text),
      size ? button("Clear", () => screen.selection.clear(), { key: "Esc", class: "plain" })
        : screen.framed ? null : button("Select all", () => screen.selectAll(), { key: "A", class: "plain" })),
    h("div.extra", {}, screen.buttons?.() ?? [],
      button("None of these", () => labelTargets(screen, NONE), { key: "0" }),
      button("Skip", () => skipTargets(screen), { key: "S" })),
    h("div.classes", { role: "group", "aria-label": "Label as" },
      shown.map((one, place) => button(one.name, () => labelTargets(screen, one.id), { key: String(place + 1), class: one.name.length > LONG ? "class long" : "class", title: one.name })),
      button(more, () => labelByName(screen), { key: "N" })));
}
