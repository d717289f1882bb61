/** One image closely: beside the grid where there is room, or over the page. */

import { button, fileName, h, percent, refill } from "./dom.js";
import { NONE, store } from "./store.js";

const DECISIONS = {
  accept: "accepted", reject: "rejected: it fits no known class well enough", novel: "novel: it lies in a cluster of rejected images",
};

function facts(record, blind) {
  const rows = [];
  const add = (title, ...words) => rows.push(h("div", {}, h("dt", {}, title), h("dd", {}, ...words)));
  if (record.label !== null) {
    add("Label", h("strong", {}, record.label === NONE ? "∅ none of these" : `✓ ${store.className(record.label)}`));
  } else if (record.skipped) add("Label", "skipped");
  if (blind) return rows;
  if (record.classId !== null && record.classId !== undefined) {
    add("Model", `${store.className(record.classId)}, ${percent(record.probability)}`);
  }
  add("Decision", DECISIONS[record.decision] ?? record.decision);
  if (record.score !== null && record.score !== undefined) {
    const threshold = store.overview?.histogram?.threshold;
    add("ID score", `${Number(record.score).toFixed(3)}${threshold === null || threshold === undefined ? "" : `, threshold ${Number(threshold).toFixed(3)}`}`);
  }
  return rows;
}

/** The picture and the facts of a record. */
export function details(record, more = [], blind = false, about = []) {
  if (!record) return [h("p.empty", {}, "No image.")];
  const image = h("img", { src: `/image/${record.row}`, alt: fileName(record.name) });
  image.addEventListener("error", () => { image.replaceWith(h("p.lost", {}, "The file is gone or cannot be read.")); });
  image.addEventListener("load", () => image.classList.toggle("crisp", image.naturalWidth <= 32));
  const frame = h("div.frame", {}, image);
  frame.style.backgroundImage = `url("/thumb/${record.row}")`;
  image.addEventListener("load", () => { frame.style.backgroundImage = ""; });
  return [frame, h("p.path", {}, record.name), h("dl", {}, facts(record, blind), about.map(([title, words]) => h("div", {}, h("dt", {}, title), h("dd", {}, words)))),
    h("div.buttons", {},
      button("Similar", () => { location.hash = `#/similar/${record.row}`; }, { key: "F" }), ...more)];
}

/** A panel that follows the active image of a screen. */
export class Inspector {
  constructor(screen) {
    this.screen = screen;
    this.element = h("aside.inspector", { "aria-label": "The framed image" });
    this.shown = "";
  }

  draw() {
    const row = this.screen.grid?.activeRow ?? null;
    const record = store.records.get(row);
    const state = JSON.stringify([row, record, record && store.className(record.label ?? record.classId)]);
    if (state === this.shown) return;
    this.shown = state;
    refill(this.element, record
      ? [...details(record, [button("Closely", () => lookClosely(this.screen), { key: "V" })], this.screen.blind, this.screen.reasons?.(record))]
      : [h("p.empty", {}, "The framed image is shown here.")]);
  }
}

/** Show the active image over the page; the keys work on. */
export function lookClosely(screen) {
  const open = document.querySelector("dialog.look");
  if (open) return open.close();
  if (!screen.grid || screen.grid.activeRow === null) return null;
  const box = h("dialog.look", { "aria-label": "The image, closely" });
  const draw = () => {
    const record = store.records.get(screen.grid.activeRow);
    const state = JSON.stringify(record ?? null);
    if (box.dataset.state === state) return;
    box.dataset.state = state;
    refill(box, h("button.close", { "aria-label": "Close", onclick: () => box.close(), autofocus: true }, "×"), ...details(record, [], screen.blind, screen.reasons?.(record)));
  };
  const grid = screen.grid;
  grid.addEventListener("active", draw);
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
  box.addEventListener("close", () => {
    grid.removeEventListener("active", draw);
    box.remove();
  });
  window.addEventListener("hashchange", () => box.close(), { once: true });
  document.body.append(box);
  draw();
  box.showModal();
  return null;
}
