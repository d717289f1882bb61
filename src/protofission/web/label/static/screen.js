/** What all screens with images share: a selection, grids, the framed image and the keys. */

import { labelByName, labelTargets, skipTargets } from "./bar.js";
import { count, h } from "./dom.js";
import { remember, remembered } from "./keys.js";
import { Inspector, lookClosely } from "./look.js";
import { say } from "./notices.js";
import { Selection } from "./selection.js";
import { NONE, store } from "./store.js";

const SIZES = [72, 96, 120, 160, 220];
const STORED = "protofission.tile";
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

let opened = 0;

export function setTileSize(step) {
  const now = SIZES.indexOf(Number(remembered(STORED, 120)));
  const size = SIZES[Math.max(0, Math.min(SIZES.length - 1, (now < 0 ? 2 : now) + step))];
  remember(STORED, size);
  document.documentElement.style.setProperty("--tile-px", size);
  window.dispatchEvent(new Event("resize"));
}

export class Screen {
  /** The name that the navigation marks. */
  name = "";
  title = "";

  constructor(root) {
    this.root = root;
    opened += 1;
    this.number = opened;
  }

  key() {
    return false;
  }

  /** Something structural changed: read and draw again. */
  async reload() {}

  close() {}
}

export class ImageScreen extends Screen {
  /** Where labels of this screen come from, as the log has it. */
  source = "grid";
  grids = [];
  grid = null;

  constructor(root) {
    super(root);
    this.selection = new Selection();
    this.inspector = new Inspector(this);
    this.follow = () => this.inspector.draw();
    this.woken = (event) => this.wake(event.detail);
    this.looked = () => lookClosely(this);
    root.addEventListener("wake", this.woken);
    root.addEventListener("look", this.looked);
    this.resized = () => this.grids.forEach((grid) => grid.draw());
    window.addEventListener("resize", this.resized);
  }

  close() {
    this.root.removeEventListener("wake", this.woken);
    this.root.removeEventListener("look", this.looked);
    window.removeEventListener("resize", this.resized);
    this.dropGrids();
  }

  dropGrids() {
    for (const grid of this.grids) grid.close();
    this.grids = [];
    this.grid = null;
  }

  /** Take a grid in; the first one is where the keys go. */
  hold(grid) {
    this.grids.push(grid);
    grid.addEventListener("active", this.follow);
    if (!this.grid && grid.source.total) this.grid = grid;
    return grid;
  }

  wake(grid) {
    this.grid = grid;
    for (const one of this.grids) one.element.classList.toggle("awake", one === grid);
    this.inspector.draw();
  }

  /** Draw all grids, once they are in the document. */
  drawGrids() {
    for (const grid of this.grids) grid.draw();
    if (this.grid) this.wake(this.grid);
  }

  targets() {
    if (this.selection.size) return [...this.selection.rows];
    return this.grid && this.grid.activeRow !== null ? [this.grid.activeRow] : [];
  }

  /** After an answer: nothing is selected, and a single image gives way to the next. */
  answered(rows) {
    const single = !this.selection.size && rows.length === 1;
    this.selection.clear();
    if (single && this.grid) this.grid.go(this.grid.active + 1);
  }

  selectAll() {
    (this.grid ?? this.grids[0])?.selectAll();
    say(`${count(this.selection.size, "image")} selected`);
  }

  /** The class that Enter gives to an image, or null: of a rejected image the model is not sure enough. */
  suggestion(row) {
    const record = store.records.get(row);
    return record?.decision === "accept" ? record.classId : null;
  }

  #move(key, event) {
    if (!this.grid?.source.total) return false;
    if (!this.grid.move(key, event.shiftKey)) {
      const filled = this.grids.filter((grid) => grid.source.total);
      const next = filled[filled.indexOf(this.grid) + (key === "ArrowUp" ? -1 : 1)];
      if (!next) return key !== "ArrowUp";
      const column = this.grid.active % (this.grid.size?.columns ?? 1);
      this.wake(next);
      next.element.focus({ preventScroll: true });
      next.go(next.strip ? Math.min(this.grid.active, column) : column);
    } else if (document.activeElement !== this.grid.element && !document.querySelector("dialog[open]")) {
      this.grid.element.focus({ preventScroll: true });
    }
    return true;
  }

  key(key, event) {
    if (MOVES.has(key)) return this.#move(key, event);
    if (/^[1-9]$/.test(key)) {
      const one = store.classes[Number(key) - 1];
      if (one) labelTargets(this, one.id);
      return Boolean(one);
    }
    const acts = {
      0: () => labelTargets(this, NONE),
      n: () => labelByName(this),
      l: () => labelByName(this),
      s: () => skipTargets(this),
      Backspace: () => labelTargets(this, null),
      Delete: () => labelTargets(this, null),
      " ": () => this.grid?.toggleActive(),
      a: () => this.selectAll(),
      Escape: () => this.selection.clear(),
      v: () => lookClosely(this),
      f: () => { if (this.grid?.activeRow !== null && this.grid) location.hash = `#/similar/${this.grid.activeRow}`; },
      "+": () => setTileSize(1),
      "=": () => setTileSize(1),
      "-": () => setTileSize(-1),
    };
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }
}

/** The head of a screen: its name, a sentence, and what can be done with the whole. */
export function head(title, sentence = null, tools = []) {
  return h("div.screen-head", {},
    h("div", {}, h("h1", {}, title), sentence ? h("p.lede", {}, sentence) : null),
    tools.length ? h("div.tools", {}, tools) : null);
}
