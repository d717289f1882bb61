/** Map: all images as points, near if they look alike; what the lasso holds is in the grid beside. */

import { get } from "./api.js";
import { button, count, fileName, h, number, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { MapView, SHAPES, lookOf } from "./map_view.js";
import { say } from "./notices.js";
import { ImageScreen } from "./screen.js";
import { Source } from "./sources.js";
import { NONE, store } from "./store.js";

const WAYS = { decision: "decision", class: "likeliest class", label: "label" };
const DECISIONS = ["accepted", "rejected", "novel"];
const UNLABELED = -2;

export class MapScreen extends ImageScreen {
  name = "map";
  title = "Map";
  source = "map";
  way = "decision";
  hidden = new Set();

  async open() {
    this.data = await get("/api/map");
    this.view = new MapView(`Map of ${count(this.data.x.length, "image")}. Arrows move a circle, Space selects what is in it, plus and minus zoom, brackets change the circle.`,
      (row) => this.selection.has(row));
    this.view.addEventListener("lasso", ({ detail }) => this.lasso(detail));
    this.view.addEventListener("hover", ({ detail }) => this.hover(detail));
    this.view.addEventListener("recolor", () => this.color());
    this.legend = h("ul.legend");
    this.tip = h("div.tip", { hidden: true, "aria-hidden": "true" });
    this.scroller = h("div.map-scroller");
    this.words = h("p.map-words", { role: "status" });
    const grid = this.hold(new Grid({ source: new Source([]), selection: this.selection, label: "Images in the lasso", scroller: this.scroller }));
    this.grid = null;
    this.shown = grid;
    this.scroller.append(grid.element);
    const mode = button("Move", () => { this.view.moving = !this.view.moving; mode.setAttribute("aria-pressed", String(this.view.moving)); this.view.canvas.classList.toggle("moving", this.view.moving); },
      { "aria-pressed": "false", title: "Drag to move the map instead of drawing a lasso" });
    const way = h("select", { id: "way", onchange: (event) => { this.way = event.target.value; this.hidden.clear(); this.color(); } },
      Object.entries(WAYS).map(([value, text]) => h("option", { value }, text)));
    refill(this.root, h("div.screen-head", {}, h("div", {}, h("h1", {}, "Map"),
      h("p.lede", {}, "Images that look alike to the model lie close. Draw around points to select them.")),
    h("div.tools", {}, h("label", { for: "way" }, "color by "), way, mode,
      button("−", () => this.zoom(1 / 1.5), { "aria-label": "Zoom out" }), button("+", () => this.zoom(1.5), { "aria-label": "Zoom in" }), button("Whole", () => this.view.fit()))),
    h("div.map-layout", {}, h("div.map-box", {}, this.view.canvas, this.tip), h("div.map-side", {}, this.legend, this.words, this.scroller)));
    this.view.setPoints(this.data.x, this.data.y);
    this.color();
    this.list = () => this.drawList();
    this.selection.addEventListener("change", this.list);
    this.changed = (event) => this.take(event.detail);
    store.addEventListener("records", this.changed);
    this.drawList();
    this.view.canvas.focus({ preventScroll: true });
  }

  close() {
    this.view?.close();
    store.removeEventListener("records", this.changed);
    super.close();
  }

  zoom(by) {
    const box = this.view.canvas.getBoundingClientRect();
    this.view.zoomAt(box.width / 2, box.height / 2, by);
  }

  /** The groups of the way of coloring: [name, place], and the group of every row. */
  groups() {
    const { data } = this;
    if (this.way === "decision") return { names: DECISIONS, group: data.decision };
    const places = new Map(store.classes.map((one, place) => [one.id, place]));
    const names = store.classes.map((one) => one.name);
    if (this.way === "class") {
      return { names, group: data.class.map((id, row) => (data.decision[row] === 0 ? places.get(id) ?? -1 : -1)), rest: "rejected" };
    }
    places.set(NONE, names.length);
    return { names: [...names, "none of these"], group: data.label.map((id) => (id === UNLABELED ? -1 : places.get(id) ?? -1)), rest: "no label" };
  }

  color() {
    const { names, group, rest } = this.groups();
    const sizes = new Map();
    for (const place of group) sizes.set(place, (sizes.get(place) ?? 0) + 1);
    const entries = [...names.map((name, place) => [name, place]), ...(rest ? [[rest, -1]] : [])].filter(([, place]) => sizes.get(place));
    refill(this.legend, entries.map(([name, place]) => {
      const { color, shape } = lookOf(place);
      const sign = h("span.sign", { "aria-hidden": "true" }, SHAPES[shape]);
      sign.style.color = color;
      const eye = h("button.eye", { "aria-label": `${this.hidden.has(place) ? "show" : "hide"} ${name}`,
        onclick: () => { if (!this.hidden.delete(place)) this.hidden.add(place); this.color(); } }, this.hidden.has(place) ? "show" : "hide");
      return h("li", { class: this.hidden.has(place) ? "off" : "" }, h("button.group", { title: `Select all of ${name}`,
        onclick: () => this.lasso({ rows: group.flatMap((one, row) => (one === place ? [row] : [])), add: false }) }, sign,
      h("span.words", {}, name), h("small", {}, number(sizes.get(place)))), eye);
    }));
    this.view.setGroups(group, this.hidden);
  }

  lasso({ rows, add, toggle }) {
    if (toggle) {
      if (rows.length) this.selection.toggle(rows[0]);
      else this.selection.clear();
    } else if (add) this.selection.add(rows);
    else this.selection.replace(rows);
    say(`${count(this.selection.size, "image")} selected`);
  }

  hover([row]) {
    this.tip.hidden = row === undefined;
    if (row === undefined) return;
    const [x, y] = this.view.at(row);
    const box = this.view.canvas.getBoundingClientRect();
    this.tip.style.left = `${Math.min(x + 14, box.width - 150)}px`;
    this.tip.style.top = `${Math.min(y + 14, box.height - 160)}px`;
    if (this.tip.dataset.row === String(row)) return;
    this.tip.dataset.row = row;
    const name = h("small", {}, fileName(store.records.get(row)?.name ?? ""));
    refill(this.tip, h("img", { src: `/thumb/${row}`, alt: "" }), name);
    store.loadRows([row]).then(() => { name.textContent = fileName(store.records.get(row)?.name ?? ""); }).catch(() => null);
  }

  drawList() {
    const rows = [...this.selection.rows];
    this.view.draw();
    const size = rows.length;
    this.words.textContent = size ? `${count(size, "image")} selected. A click takes one out.` : "Nothing is selected: draw around points, or take a group of the legend.";
    if (size && this.listed && size < this.listed.length && rows.every((row) => this.listedSet.has(row))) return;
    this.listed = rows;
    this.listedSet = new Set(rows);
    this.shown.setSource(new Source(rows), 0);
  }

  /** Labels that changed on this page show on the map at once. */
  take(rows) {
    for (const row of rows) {
      const record = store.records.get(row);
      if (record) this.data.label[row] = record.label ?? UNLABELED;
    }
    if (this.way === "label") this.color();
  }

  answered() {
    this.selection.clear();
  }

  key(key, event) {
    const onMap = document.activeElement === this.view.canvas || document.activeElement === document.body;
    if (onMap && !this.grid) {
      const done = this.view.key(key, event);
      if (typeof done === "string") say(done);
      if (done) return true;
    } else if (document.activeElement === this.view.canvas) {
      this.grid = null;
      if (this.view.key(key, event)) return true;
    }
    if (key === "a") {
      this.lasso({ rows: this.data.x.flatMap((_, row) => (this.hidden.has(this.view.group[row]) ? [] : [row])), add: false });
      return true;
    }
    return super.key(key, event);
  }

  selectAll() {
    this.key("a", {});
  }

  async reload() {
    Object.assign(this.data, await get("/api/map?only=state"));
    this.color();
  }
}
