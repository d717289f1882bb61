/** New things: clusters of the rejected images as cards, to name, merge, split, promote or junk. */

import { get } from "./api.js";
import { Cards, thumb } from "./cards.js";
import { mergeClusters } from "./changes.js";
import { askPromotion, clusterButtons, clusterKeys, junk } from "./cluster_acts.js";
import { choose } from "./dialogs.js";
import { button, count, h, number, percent, refill } from "./dom.js";
import { Screen, head } from "./screen.js";
import { store } from "./store.js";

/** How sure it is that a cluster is one, in words. */
function steadiness(stability) {
  if (stability === null || stability === undefined) return "";
  const word = stability >= 0.8 ? "steady" : stability >= 0.5 ? "fairly steady" : "loose";
  return `${word}, ${percent(stability)}`;
}

export class NewScreen extends Screen {
  name = "new";
  title = "New things";

  async open() {
    this.cards = new Cards("Clusters of rejected images", () => this.drawTools());
    this.tools = h("div.tools");
    this.words = h("p.lede");
    this.rest = h("p.rest");
    refill(this.root, h("div.screen-head", {}, h("div", {}, h("h1", {}, "New things"), this.words), this.tools), this.cards.element, this.rest);
    await this.reload();
    this.cards.current?.element.focus({ preventScroll: true });
  }

  async reload() {
    this.clusters = await get("/api/clusters");
    const open = this.clusters.filter((one) => one.size);
    this.words.textContent = open.length
      ? `${count(open.length, "cluster")} of rejected images that look alike, the largest first. Give one a name and it becomes a class.`
      : "No cluster is left to decide.";
    const clustered = this.clusters.reduce((sum, one) => sum + one.size, 0);
    const { rejected, novel } = store.overview.counts;
    const alone = novel ? rejected : rejected - clustered;
    refill(this.rest, alone > 0 ? [`${count(alone, "rejected image")} in no cluster. `, h("a", { href: "#/images/decision:reject" }, "All rejected images"), "."] : []);
    this.clusters = [...open, ...this.clusters.filter((one) => !one.size)];
    this.cards.fill(this.clusters.map((one) => ({ id: one.number, element: this.card(one) })));
    if (!this.clusters.length) {
      refill(this.cards.element, h("p.empty", {}, "The model found no clusters: the rejected images are few, or all different."));
    }
  }

  drawTools() {
    const marked = this.cards.marked.size;
    refill(this.tools,
      button(marked > 1 ? `Merge ${number(marked)}` : "Merge", () => this.merge(), { key: "M" }),
      marked > 1 ? button(`Promote ${number(marked)}`, () => this.promoteMarked(), { key: "P" }) : null,
      marked > 1 ? button(`Junk ${number(marked)}`, () => this.junkMarked(), { key: "J" }) : null,
      marked ? button("Clear marks", () => this.cards.clear(), { key: "Esc", class: "plain" }) : null);
  }

  card(one) {
    const open = `#/images/cluster:${one.number}`;
    const near = one.nearest.filter((row) => row !== one.medoid);
    const row = (title, rows) => h("div.thumb-row", {}, h("small", {}, title), h("div.small-thumbs", {}, rows.map((image) => thumb(image))));
    if (!one.size) return this.gone(one);
    const acts = clusterButtons(one, () => this.reload());
    return h("div.card.cluster", { role: "listitem", "aria-label": `${one.name}, ${count(one.size, "image")}` },
      h("div.card-head", {}, h("input", { type: "checkbox", "aria-label": `Mark ${one.name}`, onchange: (event) => this.cards.mark(one.number, event.target.checked) }),
        h("h2", {}, h("a", { href: open }, one.name)), h("span.size", {}, count(one.size, "image"))),
      h("a.body", { href: open, tabindex: "-1", "aria-hidden": "true" }, thumb(one.medoid, "medoid"),
        row("typical", near.slice(0, 8)), row("farthest", one.farthest.slice(0, 4))),
      h("div.card-foot", {}, h("div.buttons", {}, acts), h("small", { title: "How often the same images come together when the clustering is repeated on parts" }, steadiness(one.stability))));
  }

  /** A cluster of which nothing is left to decide. */
  gone(one) {
    const promoted = one.promoted !== null && one.promoted !== undefined;
    return h("div.card.cluster.junk", { role: "listitem", "aria-label": `${one.name}, decided` },
      h("div.card-head", {}, h("h2", {}, one.name), h("span.size", {}, promoted
        ? h("a", { href: `#/class/${one.promoted}` }, `now the class ${store.className(one.promoted)}`) : one.junk ? "∅ junk: none of these" : "all labeled")));
  }

  find(id) {
    return this.clusters.find((one) => one.number === id);
  }

  get marked() {
    return [...this.cards.marked].map((id) => this.find(id));
  }

  async junkMarked() {
    if (await junk(...this.marked) !== null) this.cards.clear();
  }

  async promoteMarked() {
    if (await askPromotion(...this.marked) !== null) this.cards.clear();
    await this.reload();
  }

  async merge() {
    let marked = [...this.cards.marked];
    if (marked.length < 2) {
      const first = marked[0] ?? this.cards.current?.id;
      const others = this.clusters.filter((one) => one.number !== first && one.size);
      if (first === undefined || !others.length) return;
      const other = await choose(`Merge ${this.find(first).name} with …`, others.map((one) => ({ text: one.name, note: count(one.size, "image"), number: one.number })));
      if (!other) return;
      marked = [first, other.number];
    }
    const [into] = marked.toSorted((a, b) => this.find(b).size - this.find(a).size);
    await mergeClusters(marked.filter((id) => id !== into), into);
    this.cards.clear();
  }

  key(key) {
    const one = this.cards.current ? this.find(this.cards.current.id) : null;
    if (key.startsWith("Arrow")) {
      if (this.cards.awake) return this.cards.move(key);
      this.cards.current?.element.focus();
      return Boolean(one);
    }
    const acts = {
      m: () => this.merge(),
      Escape: () => this.cards.clear(),
      ...(one ? { " ": () => this.cards.mark(one.number), Enter: () => { location.hash = `#/images/cluster:${one.number}`; } } : {}),
      ...(one?.size ? {
        ...clusterKeys(one, () => this.reload()),
        ...(this.cards.marked.size > 1 ? { j: () => this.junkMarked(), p: () => this.promoteMarked() } : {}),
      } : {}),
    };
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }
}
