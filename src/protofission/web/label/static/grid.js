/** A grid of images of which the visible ones alone are in the document. */

import { h, settled } from "./dom.js";
import { store } from "./store.js";
import { makeTile, fillTile } from "./tile.js";

const OVERSCAN = 2;
const FAST = 4;
let made = 0;

export class Grid extends EventTarget {
  /**
   * @param {object} options
   *   source: rows; selection: shared by grids; label: for screen readers; caption: text of a record;
   *   strip: one row that scrolls sideways; scroller: an element that scrolls, by default the page;
   *   lines: number of lines of a caption; large: wider tiles;
   *   settledBy: whether a record needs no more attention, so that its tile is pale.
   */
  constructor({ source, selection, label, caption = null, strip = false, scroller = null, lines = 1, large = false, settledBy = null }) {
    super();
    Object.assign(this, { source, selection, caption, strip, scroller, lines, settledBy });
    made += 1;
    this.name = `grid${made}`;
    this.active = 0;
    this.anchor = 0;
    this.tiles = new Map();
    this.layer = h("div.layer");
    this.element = h(`div.grid${strip ? ".strip" : ""}${large ? ".large" : ""}`, {
      id: this.name, role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": label,
      onclick: (event) => this.#click(event), ondblclick: (event) => this.#open(event),
      onfocus: () => this.#wake(), onmousedown: (event) => { if (event.shiftKey) event.preventDefault(); },
    }, this.layer);
    this.element.dataset.lines = lines;
    this.draw = this.draw.bind(this);
    this.scrolled = () => this.#scrolled();
    this.arrived = settled(() => { this.speed = 0; this.draw(); }, 90);
    this.refresh = (event) => this.#refresh(event.detail);
    (scroller ?? window).addEventListener("scroll", this.scrolled, { passive: true });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
    store.addEventListener("records", this.refresh);
    this.chosen = () => this.#refresh(null);
    selection.addEventListener("change", this.chosen);
    this.lastTop = 0;
    this.lastTime = 0;
    this.speed = 0;
  }

  close() {
    (this.scroller ?? window).removeEventListener("scroll", this.scrolled);
    store.removeEventListener("records", this.refresh);
    this.selection.removeEventListener("change", this.chosen);
    this.watcher.disconnect();
  }

  get rows() {
    return this.source.rows;
  }

  get activeRow() {
    return this.rows[this.active] ?? null;
  }

  /** Put other rows into the grid; the active place stays if it can. */
  setSource(source, active = this.active) {
    this.source = source;
    for (const tile of this.tiles.values()) tile.remove();
    this.tiles.clear();
    this.drawn = null;
    this.active = Math.max(0, Math.min(active, source.total - 1));
    this.anchor = this.active;
    this.draw();
  }

  #wake() {
    this.element.dispatchEvent(new CustomEvent("wake", { bubbles: true, detail: this }));
    this.#mark();
  }

  #scrolled() {
    const top = this.scroller ? this.scroller.scrollTop : window.scrollY;
    const now = performance.now();
    this.speed = Math.abs(top - this.lastTop) / Math.max(1, now - this.lastTime);
    this.lastTop = top;
    this.lastTime = now;
    this.draw();
    this.arrived();
  }

  /** Sizes in pixels, from the style sheet. */
  measure() {
    const style = getComputedStyle(this.element);
    const tile = Number.parseFloat(style.getPropertyValue("--tile-px")) || 120;
    const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
    const gap = 8;
    const least = (tile / 16) * rem;
    const width = this.element.clientWidth;
    const columns = this.strip ? Math.max(1, this.source.total) : Math.max(1, Math.floor((width + gap) / (least + gap)));
    const wide = this.strip ? least : Math.floor((width + gap) / columns - gap);
    const high = Math.round(wide + this.lines * 1.3 * 0.75 * rem + 0.2 * rem);
    return { gap, columns, wide, high, width };
  }

  /** Make the tiles that can be seen, and let go of those that cannot. */
  draw() {
    if (!this.element.isConnected) return;
    const size = this.measure();
    if (!size.width) return;
    this.size = size;
    const { gap, columns, wide, high } = size;
    const total = this.source.total;
    const lineCount = Math.ceil(total / columns);
    this.layer.style.height = `${Math.max(0, lineCount * (high + gap) - gap)}px`;
    this.layer.style.width = this.strip ? `${Math.max(0, total * (wide + gap) - gap)}px` : "";
    const frame = this.element.getBoundingClientRect();
    const seen = this.scroller ? this.scroller.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
    const from = Math.max(0, Math.floor((seen.top - frame.top) / (high + gap)) - OVERSCAN);
    const to = Math.min(lineCount, Math.ceil((seen.bottom - frame.top) / (high + gap)) + OVERSCAN);
    const first = this.strip ? 0 : from * columns;
    const last = this.strip ? total - 1 : Math.min(total, to * columns) - 1;
    const drawn = [first, last, total, columns, wide, high, this.speed < FAST].join();
    if (this.drawn === drawn) return; // most frames of a scroll show the lines of the one before
    this.drawn = drawn;
    for (const [place, tile] of this.tiles) {
      if (place < first || place > last) {
        tile.remove();
        this.tiles.delete(place);
      }
    }
    const added = document.createDocumentFragment();
    for (let place = first; place <= last; place += 1) {
      let tile = this.tiles.get(place);
      if (!tile) {
        tile = makeTile(`${this.name}-${place}`, place, total);
        this.tiles.set(place, tile);
        added.append(tile);
      }
      const x = (place % columns) * (wide + gap);
      const y = Math.floor(place / columns) * (high + gap);
      tile.style.transform = `translate(${x}px, ${y}px)`;
      tile.style.width = `${wide}px`;
      tile.style.height = `${high}px`;
      this.#fill(place, tile);
    }
    this.layer.append(added);
    this.#mark();
    if (last >= first && this.speed < FAST) this.source.need(first, last);
  }

  #fill(place, tile) {
    const row = this.rows[place];
    fillTile(tile, row, store.records.get(row), {
      chosen: this.selection.has(row), caption: this.caption, settledBy: this.settledBy, quick: this.speed >= FAST,
    });
  }

  #refresh(rows) {
    const changed = rows ? new Set(rows) : null;
    for (const [place, tile] of this.tiles) {
      if (!changed || changed.has(this.rows[place])) this.#fill(place, tile);
    }
    if (!changed || changed.has(this.activeRow)) this.dispatchEvent(new Event("active"));
  }

  #mark() {
    for (const [place, tile] of this.tiles) tile.classList.toggle("active", place === this.active);
    const there = this.tiles.has(this.active);
    if (there) this.element.setAttribute("aria-activedescendant", `${this.name}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  /** Make a place the active one and scroll to it. */
  go(place, { scroll = true } = {}) {
    if (!this.source.total) return;
    this.active = Math.max(0, Math.min(place, this.source.total - 1));
    if (scroll && this.size) this.#reveal();
    this.draw();
    this.#mark();
    this.dispatchEvent(new Event("active"));
  }

  #reveal() {
    const { gap, columns, high, wide } = this.size;
    if (this.strip) {
      const left = this.active * (wide + gap);
      const box = this.element;
      if (left < box.scrollLeft) box.scrollLeft = left;
      if (left + wide > box.scrollLeft + box.clientWidth) box.scrollLeft = left + wide - box.clientWidth;
    }
    const line = this.strip ? 0 : Math.floor(this.active / columns);
    const top = this.element.getBoundingClientRect().top + line * (high + gap);
    const seen = this.scroller ? this.scroller.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
    const under = this.scroller ? 8 : 8 + coveredBottom();
    const over = this.scroller ? 8 : 8 + coveredTop();
    let by = 0;
    if (top < seen.top + over) by = top - seen.top - over;
    else if (top + high > seen.bottom - under) by = top + high - seen.bottom + under;
    if (by) (this.scroller ?? window).scrollBy(0, by);
  }

  /** Move by a key; returns false at the edge, so that the next grid can take over. */
  move(key, extend) {
    const { columns } = this.size ?? { columns: 1 };
    const page = Math.max(1, Math.floor(window.innerHeight / ((this.size?.high ?? 100) + 8)) - 1) * columns;
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page,
      Home: -this.active, End: this.source.total - 1 - this.active,
    };
    let place = this.active + steps[key];
    const sideways = key === "ArrowUp" || key === "ArrowDown";
    if (sideways && (this.strip || place < 0)) return false;
    if (key === "ArrowDown" && place >= this.source.total) {
      const lastLine = Math.floor((this.source.total - 1) / columns);
      if (Math.floor(this.active / columns) === lastLine) return false;
      place = this.source.total - 1;
    }
    place = Math.max(0, Math.min(place, this.source.total - 1));
    if (extend) this.#range(this.anchor, place);
    else this.anchor = place;
    this.go(place);
    return true;
  }

  #range(from, to) {
    this.selection.add(this.rows.slice(Math.min(from, to), Math.max(from, to) + 1));
  }

  toggleActive() {
    if (this.activeRow !== null) this.selection.toggle(this.activeRow);
    this.anchor = this.active;
  }

  selectAll() {
    this.selection.add(this.rows);
  }

  #placeOf(event) {
    const tile = event.target.closest?.(".tile");
    return tile ? Number(tile.dataset.place) : null;
  }

  #click(event) {
    const place = this.#placeOf(event);
    if (place === null) return;
    if (event.shiftKey) this.#range(this.anchor, place);
    else {
      this.selection.toggle(this.rows[place]);
      this.anchor = place;
    }
    this.element.focus({ preventScroll: true });
    this.go(place, { scroll: false });
    this.#wake();
  }

  #open(event) {
    const place = this.#placeOf(event);
    if (place === null) return;
    this.go(place, { scroll: false });
    this.selection.remove([this.rows[place]]);
    this.element.dispatchEvent(new CustomEvent("look", { bubbles: true, detail: this }));
  }
}

function coveredBottom() {
  const bar = document.getElementById("bar");
  return bar.hidden || getComputedStyle(bar).position !== "fixed" ? 0 : bar.offsetHeight;
}

function coveredTop() {
  const rail = document.getElementById("rail");
  return getComputedStyle(rail).position === "sticky" && rail.offsetWidth > window.innerWidth / 2 ? rail.offsetHeight : 0;
}
