/** One image of a grid: the picture, a mark if it is selected, and a line on what it is. */

import { fileName, h, percent } from "./dom.js";
import { NONE, store } from "./store.js";

export function makeTile(id, place, total) {
  const image = h("img", { alt: "", draggable: "false", decoding: "async" });
  image.addEventListener("error", () => { image.closest(".tile")?.classList.add("gone"); image.hidden = true; });
  image.addEventListener("load", () => {
    image.classList.toggle("crisp", image.naturalWidth > 0 && image.naturalWidth <= 32);
    image.classList.add("there");
  });
  return h("div.tile", { id, role: "option", "aria-posinset": place + 1, "aria-setsize": total, data: { place },
    "aria-label": "Loading", "aria-busy": "true" },
    h("div.picture", {}, image, h("span.lost"), h("span.check", { "aria-hidden": "true" }, "✓")),
    h("div.caption", {}));
}

/** Whether a person said what an image is, or passed it over. */
export const isAnswered = (record) => record.label !== null || record.skipped;

/** What a person or the model calls an image, in few words, with a sign that needs no color. */
export function verdict(record) {
  if (record.label !== null && record.label !== undefined) {
    return { sign: record.label === NONE ? "∅" : "✓", text: store.className(record.label), kind: "labeled" };
  }
  if (record.skipped) return { sign: "»", text: "skipped", kind: "skipped" };
  if (record.decision === "accept") {
    return { sign: "", text: store.className(record.classId), share: record.probability, kind: "accepted" };
  }
  return { sign: "✕", text: record.decision === "novel" ? "novel" : "rejected", kind: "rejected" };
}

/** The same in a sentence, for a screen reader. */
function spoken(record) {
  const { text, share, kind } = verdict(record);
  const words = {
    labeled: `labeled ${text}`, skipped: "skipped", rejected: text,
    accepted: `accepted as ${text}, ${percent(share)}`,
  };
  return `${fileName(record.name)}, ${words[kind]}`;
}

function drawLine({ sign, text, share, kind }) {
  return h(`span.line.${kind ?? "more"}`, {},
    sign ? h("span.sign", { "aria-hidden": "true" }, sign) : null,
    h("span.words", {}, text), " ",
    share === undefined || share === null ? null : h("span.share", {}, percent(share)));
}

/** Fill a tile, and touch the document only where something changed. */
export function fillTile(tile, row, record, { chosen, caption, settledBy, quick }) {
  const image = tile.querySelector("img");
  if (tile.dataset.row !== String(row) && !quick) {
    tile.dataset.row = row;
    tile.classList.remove("gone");
    image.hidden = false;
    image.classList.remove("there");
    image.src = `/thumb/${row}`;
  }
  if (tile.ariaSelected !== String(chosen)) {
    tile.ariaSelected = String(chosen);
    tile.setAttribute("aria-selected", String(chosen));
    tile.classList.toggle("chosen", chosen);
  }
  if (!record) return;
  const lines = caption ? caption(record) : [verdict(record)];
  const state = JSON.stringify([record.name, record.label, record.skipped, record.decision, lines, settledBy?.(record)]);
  if (tile.state === state) return;
  tile.state = state;
  tile.removeAttribute("aria-busy");
  tile.setAttribute("aria-label", caption
    ? [fileName(record.name), ...lines.map(({ text, share }) => (share ? `${text} ${percent(share)}` : text))].join(", ")
    : spoken(record));
  tile.title = record.name;
  tile.classList.toggle("answered", Boolean(settledBy?.(record)));
  tile.querySelector(".lost").dataset.name = fileName(record.name);
  tile.querySelector(".caption").replaceChildren(...lines.map(drawLine));
}
