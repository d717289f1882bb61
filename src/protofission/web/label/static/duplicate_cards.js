/** Groups of images that are the same, or nearly: one key labels a whole group. */

import { Cards, thumb } from "./cards.js";
import { count, h, number, refill } from "./dom.js";
import { store } from "./store.js";

const SHOWN = 8;

export class DuplicateCards extends Cards {
  constructor(label, groups) {
    super(label);
    this.fill(groups.map((rows, id) => ({ id, rows, element: h("div.card.pair", { role: "listitem" }) })));
    this.follow = () => this.items.forEach((item) => this.#drawLabels(item));
    for (const item of this.items) this.#build(item);
    this.follow();
    store.addEventListener("records", this.follow);
  }

  close() {
    store.removeEventListener("records", this.follow);
  }

  #build(item) {
    item.tag = h("p.tag", {}, "! different labels");
    item.links = item.rows.slice(0, SHOWN).map((row) => h("a", { href: `#/similar/${row}`, title: store.records.get(row)?.name ?? "", tabindex: "-1" }, thumb(row), h("small")));
    const more = item.rows.length - SHOWN;
    refill(item.element, item.tag, h("div.small-thumbs", {}, item.links), more > 0 ? h("small", {}, `${number(more)} more`) : null);
  }

  #drawLabels({ rows, tag, links, element }) {
    const labels = rows.map((row) => store.records.get(row)?.label ?? null);
    const words = labels.map((label) => (label === null ? "no label" : store.className(label)));
    const clash = new Set(labels.filter((label) => label !== null)).size > 1;
    tag.hidden = !clash;
    element.classList.toggle("clash", clash);
    element.setAttribute("aria-label", `${count(rows.length, "image")}: ${[...new Set(words)].join(", ")}${clash ? ", different labels" : ""}`);
    links.forEach((link, place) => {
      link.setAttribute("aria-label", `${link.title}, ${words[place]}`);
      link.lastChild.textContent = words[place];
    });
  }
}
