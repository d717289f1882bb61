/** Classes: all of them as cards, to open, rename and merge. */

import { get } from "./api.js";
import { Cards, thumb } from "./cards.js";
import { addClass, mergeClasses, renameClass } from "./changes.js";
import { askName, keyOf, pickClass } from "./dialogs.js";
import { button, count, h, number, refill } from "./dom.js";
import { Screen, head } from "./screen.js";
import { store } from "./store.js";

const SHOWN = 8;

export async function askRename(id) {
  const name = await askName(`Rename ${store.className(id)}`, { value: store.className(id) });
  if (name && name !== store.className(id)) await renameClass(id, name);
}

/** Merge classes into one that is asked for. */
export async function askMerge(ids) {
  const names = ids.map((id) => store.className(id)).join(", ");
  const picked = await pickClass(`Merge ${names} into …`, { make: false, without: ids.length > 1 ? [] : ids });
  if (!picked) return false;
  const from = ids.filter((id) => id !== picked.id);
  return from.length ? mergeClasses(from, picked.id) : false;
}

export class ClassesScreen extends Screen {
  name = "classes";
  title = "Classes";

  async open() {
    this.cards = new Cards("Classes", () => this.drawTools());
    this.tools = h("div.tools");
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          this.seen.unobserve(entry.target);
          this.fillThumbs(entry.target);
        }
      }
    });
    const top = head("Classes", "What every class holds, and what the model would add to it.");
    top.append(this.tools);
    refill(this.root, top, this.cards.element);
    this.reload();
  }

  close() {
    this.seen.disconnect();
  }

  drawTools() {
    const marked = [...this.cards.marked];
    refill(this.tools,
      button("New class", () => this.make(), { key: "N" }),
      button(marked.length > 1 ? `Merge ${number(marked.length)} classes` : "Merge", () => this.merge(), { key: "M" }));
  }

  async make() {
    const name = await askName("A new class", { go: "Add" });
    if (name) await addClass(name);
  }

  async merge() {
    const ids = this.cards.marked.size ? [...this.cards.marked] : [this.cards.current?.id].filter((id) => id !== undefined);
    if (ids.length && await askMerge(ids)) this.cards.clear();
  }

  async reload() {
    if (!store.classes.length) refill(this.cards.element, h("p.empty", {}, "There is no class yet: N makes one."));
    else this.cards.fill(store.classes.map((one) => ({ id: one.id, element: this.card(one) })));
    for (const { element } of this.cards.items) this.seen.observe(element);
  }

  card(one) {
    const key = keyOf(one.id);
    return h("div.card.class-card", { role: "listitem", "aria-label": `${one.name}, ${count(one.labels, "label")}, ${number(one.accepted)} accepted`, data: { id: one.id } },
      h("div.card-head", {}, h("input", { type: "checkbox", "aria-label": `Mark ${one.name}`, onchange: (event) => this.cards.mark(one.id, event.target.checked) }),
        h("h2", {}, h("a", { href: `#/class/${one.id}` }, one.name)), one.new ? h("small.tag", {}, "new") : null, key ? h("kbd", {}, key) : null),
      h("p.facts", {}, `${count(one.labels, "label")} · ${number(one.accepted)} accepted`),
      h("div.small-thumbs", { "aria-hidden": "true" }));
  }

  async fillThumbs(element) {
    try {
      const { id } = element.dataset;
      const { best } = await get(`/api/classes/${id}`);
      let rows = best;
      if (!rows.length) {
        rows = (await get(`/api/images?set=label:${id}&limit=${SHOWN}`)).images.map(([row]) => row);
      }
      refill(element.querySelector(".small-thumbs"), rows.slice(0, SHOWN).map((row) => thumb(row)));
    } catch { /* the banner says it */ }
  }

  key(key) {
    const current = this.cards.current;
    if (key.startsWith("Arrow")) return this.cards.move(key);
    const acts = {
      n: () => this.make(),
      m: () => this.merge(),
      r: () => current && askRename(current.id),
      " ": () => current && this.cards.mark(current.id),
      Escape: () => this.cards.clear(),
      Enter: () => { if (current) location.hash = `#/class/${current.id}`; },
    };
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }
}
