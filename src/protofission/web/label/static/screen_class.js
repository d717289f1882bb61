/** One class: its best, borderline and rejected images, and its sub-classes as columns. */

import { get } from "./api.js";
import { Cards, thumb } from "./cards.js";
import { confirmSuggestions, dissolveSubclasses, mergeSubclasses, nameSubclass, promoteSubclass } from "./changes.js";
import { askName, choose } from "./dialogs.js";
import { button, count, h, number, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { toast } from "./notices.js";
import { ImageScreen, head } from "./screen.js";
import { askMerge, askRename } from "./screen_classes.js";
import { Source } from "./sources.js";
import { store } from "./store.js";
import { isAnswered } from "./tile.js";

const STRIPS = [
  ["best", "Best", "accepted", "The surest that have no label yet."],
  ["borderline", "Borderline", "borderline", "Nearest to the threshold, on both sides."],
  ["rejected", "Rejected", "rejected", "Rejected, and nearest to this class."],
];

export class ClassScreen extends ImageScreen {
  name = "classes";

  async open(id) {
    this.id = Number(id);
    await this.build();
  }

  async build() {
    const about = await get(`/api/classes/${this.id}`);
    this.about = about;
    this.title = about.name;
    this.dropGrids();
    const strips = STRIPS.map(([key, title, set, words]) => {
      const total = about.totals?.[set] ?? about[key].length;
      const grid = this.hold(new Grid({ source: new Source(about[key]), selection: this.selection, strip: true, settledBy: isAnswered, label: `${title} of ${about.name}` }));
      return h("section.strip-section", {}, h("div.strip-head", {}, h("h2", {}, title), h("small", {}, words),
        total ? h("a", { href: `#/images/class:${this.id}:${set}` }, `All ${number(total)}`) : null),
      about[key].length ? grid.element : h("p.empty", {}, "None."));
    });
    this.cards = new Cards("Sub-classes", () => this.drawTools());
    this.tools = h("div.tools");
    const living = about.subclasses.filter((one) => one.size > 0 && !one.dissolved);
    const dissolved = about.subclasses.some((one) => one.dissolved);
    refill(this.root,
      h("a.up", { href: "#/classes" }, "← classes"),
      head(about.name, this.sentence(), [
        button("Rename", () => this.rename(), { key: "R" }), button("Merge into …", () => this.mergeClass(), { key: "M" })]),
      h("div.with-inspector", {}, h("div", {}, strips), this.inspector.element),
      h("section", { "aria-labelledby": "kinds" }, h("div.strip-head", {}, h("h2", { id: "kinds" }, "Sub-classes"),
        h("small", {}, dissolved ? "You said that they are not a real division." : "Kinds that the model found inside the class."), this.tools),
      living.length ? this.cards.element : h("p.empty", {}, dissolved ? "None are kept." : "The model found one kind only.")));
    this.cards.fill(living.map((one) => ({ id: this.keyOf(one), element: this.card(one) })));
    this.drawGrids();
    this.drawTools();
  }

  /** A class that others were merged into lists the sub-classes of all of them. */
  keyOf(one) {
    return `${one.class_id ?? this.id}/${one.number}`;
  }

  sentence() {
    const { totals } = this.about;
    const parts = [count(totals?.labeled ?? 0, "label"), `${number(totals?.accepted ?? this.about.best.length)} accepted and not yet labeled`];
    return `${parts.join(", ")}.`;
  }

  drawTools() {
    const several = this.cards.items.length > 1;
    refill(this.tools, several ? [
      button(this.cards.marked.size > 1 ? `Merge ${number(this.cards.marked.size)}` : "Merge", () => this.mergeKinds(), { key: "M" }),
      button("Not a real division", () => dissolveSubclasses(this.id), { key: "D" })] : []);
  }

  card(one) {
    const open = `#/images/subclass:${one.class_id ?? this.id}:${one.number}`;
    return h("div.card.kind", { role: "listitem", "aria-label": `${one.name}, ${count(one.size, "image")}` },
      h("div.card-head", {}, h("input", { type: "checkbox", "aria-label": `Mark ${one.name}`, onchange: (event) => this.cards.mark(this.keyOf(one), event.target.checked) }),
        h("h3", {}, h("a", { href: open }, one.name))),
      h("p.facts", {}, count(one.size, "image")),
      h("a.small-thumbs", { href: open, tabindex: "-1", "aria-hidden": "true" }, one.rows.slice(0, 9).map((row) => thumb(row))),
      h("div.buttons", {}, button("Name", () => this.nameKind(one), { key: "R" }), button("Promote", () => this.promote(one), { key: "P" })));
  }

  rename() {
    return askRename(this.id);
  }

  async mergeClass() {
    const done = await askMerge([this.id]);
    if (done !== false && done !== null && !store.classes.some((one) => one.id === this.id)) location.hash = "#/classes";
  }

  async nameKind(one) {
    const name = await askName(`Name the sub-class ${one.name}`, { value: one.name });
    if (name) await nameSubclass(one.class_id ?? this.id, one.number, name);
  }

  async promote(one) {
    const name = await askName("Promote to a class of its own", {
      value: one.name, go: "Promote", note: `Its ${count(one.size, "image")} become labels of a new class. Z takes it back.` });
    if (name) await promoteSubclass(one.class_id ?? this.id, one.number, name);
  }

  async mergeKinds() {
    const living = this.about.subclasses.filter((one) => one.size > 0 && !one.dissolved);
    let marked = living.filter((one) => this.cards.marked.has(this.keyOf(one)));
    if (marked.length < 2) {
      const first = marked[0] ?? living.find((one) => this.keyOf(one) === this.cards.current?.id);
      const others = living.filter((one) => one !== first && one.class_id === first?.class_id);
      if (!first || !others.length) return;
      const other = await choose(`Merge ${first.name} with …`, others.map((one) => ({ text: one.name, note: count(one.size, "image"), one })));
      if (!other) return;
      marked = [first, other.one];
    }
    const [into, ...others] = marked.toSorted((a, b) => b.size - a.size);
    if (others.some((one) => one.class_id !== into.class_id)) {
      toast("These sub-classes come from different classes: merge or promote them one by one.", { wrong: true });
      return;
    }
    await mergeSubclasses(into.class_id ?? this.id, others.map((one) => one.number), into.number);
    this.cards.clear();
  }

  buttons() {
    return [button(`As ${store.className(this.id)}`, () => this.confirm(), { key: "Enter" })];
  }

  suggestion() {
    return this.id;
  }

  async confirm() {
    const rows = this.targets();
    this.answered(rows);
    await confirmSuggestions(rows.map((row) => [row, this.id]), this.source);
  }

  key(key, event) {
    const one = this.cards?.awake ? this.about.subclasses.find((kind) => this.keyOf(kind) === this.cards.current?.id) : null;
    if (one) {
      if (key.startsWith("Arrow") && this.cards.move(key)) return true;
      const acts = {
        r: () => this.nameKind(one), p: () => this.promote(one), m: () => this.mergeKinds(),
        " ": () => this.cards.mark(this.keyOf(one)), Enter: () => { location.hash = `#/images/subclass:${one.class_id ?? this.id}:${one.number}`; },
        Escape: () => this.cards.clear(),
      };
      if (acts[key]) {
        acts[key]();
        return true;
      }
    }
    if (key === "ArrowDown" && !one && this.grid === this.grids.findLast((grid) => grid.source.total) && this.cards.current) {
      this.cards.current.element.focus();
      return true;
    }
    const acts = { r: () => this.rename(), m: () => this.mergeClass(), d: () => dissolveSubclasses(this.id), Enter: () => this.confirm() };
    if (acts[key]) {
      acts[key]();
      return true;
    }
    return super.key(key, event);
  }

  async reload() {
    const place = window.scrollY;
    if (!store.classes.some((one) => one.id === this.id)) {
      location.hash = "#/classes";
      return;
    }
    await this.build();
    window.scrollTo(0, place);
  }
}
