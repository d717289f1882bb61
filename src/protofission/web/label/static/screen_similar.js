/** Similar: the nearest images to one, and what they were called. */

import { get } from "./api.js";
import { confirmSuggestions } from "./changes.js";
import { button, count, fileName, h, percent, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { details } from "./look.js";
import { ImageScreen, head } from "./screen.js";
import { Source } from "./sources.js";
import { NONE, store } from "./store.js";
import { verdict } from "./tile.js";

const NEAREST = 60;

export class SimilarScreen extends ImageScreen {
  name = "similar";
  title = "Similar";
  source = "similar";

  async open(row) {
    if (row === undefined) {
      refill(this.root, head("Similar"), h("p.empty", {}, "Move to an image on any other screen and press ", h("kbd", {}, "F"), ": its neighbors are shown here."));
      this.targets = undefined;
      return;
    }
    this.row = Number(row);
    const found = await get(`/api/similar/${this.row}?n=${NEAREST}`);
    this.cosines = new Map(found.map(({ row: other, cosine }) => [other, cosine]));
    await store.loadRows([this.row, ...this.cosines.keys()], true);
    const grid = this.hold(new Grid({
      source: new Source([...this.cosines.keys()]), selection: this.selection, label: "Similar images, the nearest first", lines: 2,
      caption: (record) => [verdict(record), { text: `cosine ${this.cosines.get(record.row)?.toFixed(2) ?? ""}`, kind: "more" }],
    }));
    this.subject = h("aside.inspector.subject", { "aria-label": "The image itself" });
    this.tally = h("div.tally");
    refill(this.root, head("Similar", `The ${count(grid.source.total, "image")} most like ${fileName(store.records.get(this.row)?.name ?? row)}, the nearest first.`),
      h("div.with-inspector.left", {}, this.subject, h("div", {}, this.tally, grid.element)));
    this.drawGrids();
    this.drawSubject();
    this.changed = () => this.drawSubject();
    store.addEventListener("records", this.changed);
    grid.element.focus({ preventScroll: true });
  }

  close() {
    store.removeEventListener("records", this.changed);
    super.close();
  }

  drawSubject() {
    const record = store.records.get(this.row);
    const state = JSON.stringify(record);
    if (state !== this.subjectState) {
      this.subjectState = state;
      refill(this.subject, ...details(record).slice(0, -1));
    }
    const names = new Map();
    for (const row of this.cosines.keys()) {
      const { label, skipped } = store.records.get(row) ?? {};
      const name = label === null || label === undefined ? skipped ? "skipped" : "no label" : label === NONE ? "none of these" : store.className(label);
      names.set(name, (names.get(name) ?? 0) + 1);
    }
    const total = this.cosines.size || 1;
    refill(this.tally, h("p", {}, "What they were called: "), h("ul", {}, [...names].sort((a, b) => b[1] - a[1])
      .map(([name, times]) => h("li", {}, h("strong", {}, name), ` ${times} · ${percent(times / total)}`))));
  }

  buttons() {
    const { label } = store.records.get(this.row) ?? {};
    if (label === null || label === undefined || label === NONE) return [];
    return [button(`As ${store.className(label)}`, () => this.confirm(), { key: "Enter" })];
  }

  suggestion() {
    return store.records.get(this.row)?.label ?? null;
  }

  /** Give the images the label of the image itself. */
  async confirm() {
    const id = this.suggestion();
    if (id === null) return;
    const rows = this.targets();
    this.answered(rows);
    await confirmSuggestions(rows.map((row) => [row, id]), this.source);
  }

  key(key, event) {
    if (key === "Enter") {
      this.confirm();
      return true;
    }
    return super.key(key, event);
  }

  async reload() {
    if (this.grid) await store.loadRows([this.row, ...this.grid.rows], true);
  }
}
