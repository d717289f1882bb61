/** Label next: a batch with one suggestion each; and a queue drawn at random, without suggestions. */

import { get } from "./api.js";
import { confirmSuggestions, drawRandom } from "./changes.js";
import { button, count, h, number, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { fail } from "./notices.js";
import { ImageScreen, head } from "./screen.js";
import { Source } from "./sources.js";
import { NONE, store } from "./store.js";
import { isAnswered, verdict } from "./tile.js";

const PAUSE = 350;
const DRAW = 30;

/** As many images as can be seen at once, 12 to 24. */
function batchSize(grid) {
  const size = grid?.size;
  if (!size) return 18;
  const top = grid.element.getBoundingClientRect().top + window.scrollY;
  const room = window.innerHeight - top - Math.max(96, document.getElementById("bar").offsetHeight);
  const fitting = size.columns * Math.max(1, Math.floor((room + size.gap) / (size.high + size.gap)));
  return Math.max(12, Math.min(24, fitting));
}

const tabs = (random) => h("nav.tabs", { "aria-label": "Which queue" },
  h("a", { href: "#/next", "aria-current": random ? null : "page" }, "Chosen by the model"),
  h("a", { href: "#/random", "aria-current": random ? "page" : null }, "At random"));

const isOpen = (row) => {
  const record = store.records.get(row);
  return !record || !isAnswered(record);
};

/** A grid of which each answer brings the next open image. */
class QueueScreen extends ImageScreen {
  constructor(root) {
    super(root);
    this.stepped = (event) => this.bringBack(event.detail);
    store.addEventListener("stepped", this.stepped);
  }

  close() {
    store.removeEventListener("stepped", this.stepped);
    super.close();
  }

  /** Images that were answered and are open again get the frame. */
  bringBack({ rows, back }) {
    if (!back || !rows.length || !this.grid) return;
    const missing = rows.filter((row) => !this.grid.rows.includes(row)).slice(0, batchSize(this.grid));
    if (missing.length) this.show([...missing, ...this.grid.rows.filter(isOpen)]);
    this.grid.go(this.grid.rows.indexOf(rows[0]));
    this.progress();
  }

  answered(rows) {
    const single = !this.selection.size && rows.length === 1;
    this.selection.clear();
    const from = single ? this.grid.active : -1;
    const places = this.grid.rows.map((_, place) => place);
    const open = places.filter((place) => isOpen(this.grid.rows[place]));
    const next = open.find((place) => place > from) ?? open[0];
    if (next === undefined) this.finished();
    else this.grid.go(next);
    this.progress();
  }

  show(rows) {
    this.grid.setSource(new Source(rows), 0);
    this.grid.go(0, { scroll: false });
  }

  progress() {}
}

export class NextScreen extends QueueScreen {
  name = "next";
  title = "Label next";
  source = "next";

  async open() {
    this.hints = new Map();
    this.waiting = [];
    this.seen = new Set();
    this.bar = h("div.progress-line", { role: "status" });
    const grid = this.hold(new Grid({ source: new Source([]), selection: this.selection, label: "Images to label next", lines: 2, settledBy: isAnswered, caption: (record) => this.caption(record) }));
    this.grid = grid;
    this.place = h("div");
    refill(this.root, tabs(false), head("Label next", "Those that teach the model most. Enter takes the suggestion, a key gives another.", [this.bar]), this.place);
    await this.fill();
    await this.nextBatch();
  }

  caption(record) {
    if (record.label !== null || record.skipped) return [verdict(record), { text: this.hints.get(record.row)?.why ?? "", kind: "more" }];
    const hint = this.hints.get(record.row);
    if (!hint) return [verdict(record)];
    return [{ text: `${hint.suggestion === NONE ? "none of these" : store.className(hint.suggestion)}?`, share: hint.suggestion === NONE ? null : hint.probability, kind: "suggested" },
      { text: hint.why, kind: "more" }];
  }

  /** Why an image is asked for, in full. */
  reasons(record) {
    const hint = this.hints.get(record.row);
    return hint ? [["Asked since", hint.why]] : [];
  }

  async fill() {
    const found = await get(`/api/next?n=${Math.min(100, 2 * batchSize(this.grid) + this.waiting.length)}`);
    for (const hint of found) {
      this.hints.set(hint.row, hint);
      if (!this.seen.has(hint.row)) {
        this.seen.add(hint.row);
        this.waiting.push(hint.row);
      }
    }
  }

  async nextBatch() {
    this.waiting = this.waiting.filter(isOpen);
    if (this.waiting.length < batchSize(this.grid)) {
      this.seen = new Set(this.waiting);
      await this.fill();
    }
    if (!this.grid.element.isConnected) {
      refill(this.place, h("div.with-inspector", {}, this.grid.element, this.inspector.element));
      this.grid.draw();
    }
    const batch = this.waiting.splice(0, batchSize(this.grid));
    await store.loadRows(batch, true);
    const open = batch.filter(isOpen);
    if (!open.length) {
      this.grid.setSource(new Source([]), 0);
      refill(this.place, h("p.empty", {}, "Every image has an answer. ", h("a", { href: "#/refit" }, "Refit"), " on the new labels, or ", h("a", { href: "#/export" }, "export"), " them."));
      return;
    }
    this.show(open);
    this.drawGrids();
    this.grid.element.focus({ preventScroll: true });
    this.progress();
  }

  /** The batch is done: leave it for a moment, so that one sees what one did, then go on. */
  finished() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (this.grid?.rows.some(isOpen)) return;
      try {
        await this.nextBatch();
      } catch (error) {
        fail(error);
      }
    }, PAUSE);
  }

  progress() {
    const left = this.grid.rows.filter(isOpen).length;
    this.bar.textContent = `${number(this.grid.rows.length - left)} of ${number(this.grid.rows.length)} of this batch · ${number(store.overview.counts.unlabeled)} without a label`;
  }

  suggestion(row) {
    return this.hints.get(row)?.suggestion ?? super.suggestion(row);
  }

  buttons() {
    return [button("As suggested", () => this.confirm(), { key: "Enter", class: "first" }),
      button("All as suggested", () => this.confirm(true), { key: "Shift+Enter" })];
  }

  async confirm(all = false) {
    const rows = all ? this.grid.rows.filter(isOpen) : this.targets();
    const pairs = rows.map((row) => [row, this.suggestion(row)]).filter(([, id]) => id !== null);
    const done = confirmSuggestions(pairs, this.source);
    this.answered(rows);
    await done;
  }

  key(key, event) {
    if (key === "Enter") {
      this.confirm(event.shiftKey);
      return true;
    }
    return super.key(key, event);
  }

  async reload() {
    await store.loadRows(this.grid.rows, true);
    this.progress();
  }

  close() {
    clearTimeout(this.timer);
    super.close();
  }
}

export class RandomScreen extends QueueScreen {
  name = "next";
  title = "At random";
  source = "random";
  blind = true;

  async open() {
    this.bar = h("div.progress-line", { role: "status" });
    this.hold(new Grid({ source: new Source([]), selection: this.selection, label: "Images drawn at random", settledBy: isAnswered, caption: (record) => this.caption(record) }));
    [this.grid] = this.grids;
    this.place = h("div");
    refill(this.root, tabs(true), head("At random",
      "Images drawn by lot before anybody looked. Only such labels may sharpen the guarantee, and only when all of a draw are answered. No suggestion is shown: the answer is yours.",
      [this.bar]), this.place);
    await this.reload();
  }

  caption(record) {
    if (record.label !== null || record.skipped) return [verdict(record)];
    return [{ text: "what is it?", kind: "more" }];
  }

  async reload() {
    const { rows } = await get("/api/random");
    await store.loadRows(rows.map(({ row }) => row), true);
    for (const one of rows) {
      const record = store.records.get(one.row);
      if (record) record.skipped = one.skipped && record.label === null;
    }
    const order = rows.map(({ row }) => row);
    const shown = [...order.filter(isOpen), ...order.filter((row) => !isOpen(row))];
    const more = button(order.length ? `Draw ${DRAW} more` : `Draw ${DRAW} images at random`, () => this.draw(), { class: order.length ? "" : "first" });
    refill(this.place,
      order.length ? h("div.with-inspector", {}, this.grid.element, this.inspector.element) : h("p.empty", {}, "No image has been drawn yet. "),
      h("p.after", {}, more),
      order.length ? null : h("p.note", {}, "Answer all of them, by the keys: left-out hard ones would make the guarantee too kind, so a draw counts when none is left."));
    this.show(shown);
    this.drawGrids();
    if (order.length) this.grid.element.focus({ preventScroll: true });
    this.progress();
  }

  async draw() {
    await drawRandom(DRAW);
  }

  finished() {}

  progress() {
    const { rows } = this.grid;
    const left = rows.filter(isOpen).length;
    this.bar.textContent = rows.length ? `${number(rows.length - left)} of ${count(rows.length, "image")} answered` : "";
  }
}
