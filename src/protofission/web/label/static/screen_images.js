/** A whole set of images in one grid: all, those of a class, a cluster, a decision. */

import { get } from "./api.js";
import { confirmSuggestions } from "./changes.js";
import { clusterButtons, clusterKeys } from "./cluster_acts.js";
import { button, count, h, refill } from "./dom.js";
import { Grid } from "./grid.js";
import { toast } from "./notices.js";
import { ImageScreen, head, setTileSize } from "./screen.js";
import { setSource } from "./sources.js";
import { store } from "./store.js";
import { isAnswered } from "./tile.js";

const SETS = {
  all: ["All images", "images"],
  unlabeled: ["Without a label", "images"],
  labeled: ["Labeled", "images"],
  none: ["None of these", "images"],
  skipped: ["Skipped", "images"],
  random: ["Drawn at random", "images"],
  "decision:accept": ["Accepted", "overview"],
  "decision:reject": ["Rejected", "overview"],
  "decision:novel": ["In clusters", "overview"],
};
const TABS = ["all", "unlabeled", "labeled", "none", "skipped", "decision:accept", "decision:reject", "decision:novel"];

const PARTS = {
  accepted: "accepted, the surest first", borderline: "nearest to the threshold first", rejected: "rejected, nearest to it",
  labeled: "labeled",
};

/** The title of a set in words, and the screen that it belongs to. */
function aboutSet(set) {
  if (SETS[set]) return { title: SETS[set][0], name: SETS[set][1] };
  const [kind, first, second] = set.split(":");
  if (kind === "class") return { title: store.className(Number(first)), note: PARTS[second] ?? "", name: "classes", up: `#/class/${first}` };
  if (kind === "label") return { title: store.className(Number(first)), note: "labeled", name: "classes", up: `#/class/${first}` };
  if (kind === "subclass") return { title: store.className(Number(first)), note: "images of a sub-class", name: "classes", up: `#/class/${first}` };
  if (kind === "cluster") return { title: "A cluster", note: "the most typical first", name: "new", up: "#/new" };
  return { title: set, name: "images" };
}

export class ImagesScreen extends ImageScreen {
  async open(set = "all") {
    this.set = set;
    const { name, title } = aboutSet(set);
    this.name = name;
    this.title = title;
    this.source = set.startsWith("cluster") ? "cluster" : "grid";
    await this.build();
  }

  async build() {
    const { title: plain, note, up } = aboutSet(this.set);
    const [kind, number] = this.set.split(":");
    this.cluster = kind === "cluster" ? (await get("/api/clusters")).find((one) => one.number === Number(number)) : null;
    const title = this.cluster?.name ?? plain;
    this.title = title;
    const rows = await setSource(this.set);
    const grid = new Grid({ source: rows, selection: this.selection, label: title, settledBy: this.set.includes(":") && !this.set.includes("label") ? isAnswered : null });
    this.hold(grid);
    const words = `${count(rows.total, "image")}${note ? `, ${note}` : ""}.`;
    refill(this.root,
      up ? h("a.up", { href: up }, "← back") : null,
      head(title, words, [...(this.cluster?.size ? clusterButtons(this.cluster, () => this.rebuild()) : []), h("div.sizes", { role: "group", "aria-label": "Size of the images" },
        button("−", () => setTileSize(-1), { "aria-label": "Smaller images" }), button("+", () => setTileSize(1), { "aria-label": "Larger images" }))]),
      SETS[this.set] ? h("nav.tabs", { "aria-label": "Which images" }, TABS.filter((set) => set !== "decision:novel" || store.overview.counts.novel).map((set) => h("a", {
        href: `#/images/${set}`, "aria-current": set === this.set ? "page" : null }, SETS[set][0]))) : null,
      rows.total ? h("div.with-inspector", {}, grid.element, this.inspector.element)
        : h("p.empty", {}, "There is no image here."));
    this.drawGrids();
    if (rows.total) grid.element.focus({ preventScroll: true });
  }

  /** After a change of the whole cluster its name and its images are others. */
  async rebuild() {
    this.selection.clear();
    this.dropGrids();
    await this.build();
  }

  buttons() {
    return [button("As suggested", () => this.confirm(), { key: "Enter", title: "Give the images the class that the model takes for likeliest" })];
  }

  async confirm() {
    const rows = this.targets();
    await store.loadRows(rows);
    const pairs = rows.map((row) => [row, this.suggestion(row)]).filter(([, id]) => id !== null);
    if (!pairs.length) {
      toast("The model suggests nothing for a rejected image: press a number, or N.");
      return;
    }
    this.answered(rows);
    await confirmSuggestions(pairs, this.source);
  }

  key(key, event) {
    if (key === "Enter") {
      this.confirm();
      return true;
    }
    const acts = this.cluster?.size ? clusterKeys(this.cluster, () => this.rebuild()) : {};
    if (acts[key]) {
      acts[key]();
      return true;
    }
    return super.key(key, event);
  }

  /** Keep the order and the place: what was decided stays where it was until the screen is left. */
  async reload() {
    if (!this.grid) return;
    const seen = [...this.grid.tiles.keys()];
    if (seen.length) await this.grid.source.stale(Math.min(...seen), Math.max(...seen));
  }
}

