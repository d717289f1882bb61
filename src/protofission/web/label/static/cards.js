/** Groups of images as cards: sub-classes and clusters that one can mark, open and act on. */

import { h } from "./dom.js";

export class Cards {
  /** `onmark` is called when marks change. */
  constructor(label, onmark = () => {}) {
    this.element = h("div.cards", { role: "list", "aria-label": label, onfocusin: (event) => this.#focused(event) });
    this.marked = new Set();
    this.items = [];
    this.active = 0;
    this.onmark = onmark;
  }

  /** Put cards in, each `{id, element}`; what was marked and active stays. */
  fill(items) {
    const focused = this.element.contains(document.activeElement);
    this.items = items;
    this.marked = new Set([...this.marked].filter((id) => items.some((item) => item.id === id)));
    this.active = Math.max(0, Math.min(this.active, items.length - 1));
    this.element.replaceChildren(...items.map((item) => item.element));
    this.#draw();
    if (focused) this.current?.element.focus({ preventScroll: true });
    this.onmark();
  }

  get current() {
    return this.items[this.active] ?? null;
  }

  /** Whether the focus is on a card or in it. */
  get awake() {
    return this.element.contains(document.activeElement);
  }

  mark(id, on = !this.marked.has(id)) {
    if (on) this.marked.add(id);
    else this.marked.delete(id);
    this.#draw();
    this.onmark();
  }

  clear() {
    this.marked.clear();
    this.#draw();
    this.onmark();
  }

  #draw() {
    this.items.forEach(({ id, element }, place) => {
      element.classList.toggle("marked", this.marked.has(id));
      element.tabIndex = place === this.active ? 0 : -1;
      const box = element.querySelector("input[type=checkbox]");
      if (box) box.checked = this.marked.has(id);
    });
  }

  #focused(event) {
    const place = this.items.findIndex(({ element }) => element.contains(event.target));
    if (place >= 0) {
      this.active = place;
      this.#draw();
    }
  }

  /** Move the focus by an arrow key. */
  move(key) {
    if (!this.items.length) return false;
    const tops = this.items.map(({ element }) => element.offsetTop);
    const columns = Math.max(1, tops.filter((top) => top === tops[0]).length);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
    if (!step) return false;
    const place = this.active + step;
    if (place < 0 || place >= this.items.length) return false;
    this.active = place;
    this.#draw();
    this.current.element.focus();
    this.current.element.scrollIntoView({ block: "nearest" });
    return true;
  }
}

/** A thumbnail by its row, with the name of the file for those who do not see it. */
export function thumb(row, className = "") {
  const image = h("img", { src: `/thumb/${row}`, alt: "", loading: "lazy", decoding: "async", class: className });
  image.addEventListener("load", () => image.classList.toggle("crisp", image.naturalWidth <= 32));
  image.addEventListener("error", () => image.classList.add("gone"));
  return image;
}
