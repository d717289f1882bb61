/** Problems: labels in doubt, copies and near-duplicates, files that cannot be read. */

import { get } from "./api.js";
import { confirmLabels, confirmSuggestions, nothingChosen } from "./changes.js";
import { button, count, h, number, percent, refill } from "./dom.js";
import { DuplicateCards } from "./duplicate_cards.js";
import { Grid } from "./grid.js";
import { ImageScreen, head } from "./screen.js";
import { Source } from "./sources.js";
import { NONE, store } from "./store.js";

const TABS = [["doubts", "Labels in doubt"], ["near_duplicates", "Near-duplicates"], ["copies", "Copies"], ["unreadable", "Unreadable files"]];
const SHOWN_GROUPS = 200;
const GROUP_KEYS = /^([0-9nls]|Backspace|Delete)$/;

export class ProblemsScreen extends ImageScreen {
  name = "problems";
  title = "Problems";
  source = "problems";

  async open(tab = null) {
    this.problems = await get("/api/problems");
    const { totals } = this.problems;
    this.tab = (TABS.find(([key]) => key === tab) ?? TABS.find(([key]) => totals[key]) ?? TABS[0])[0];
    this.place = h("div");
    refill(this.root, head("Problems", "What is wrong with the data, or may be."),
      h("nav.tabs", { "aria-label": "Which problems" }, TABS.map(([key, title]) => h("a", { href: `#/problems/${key}`, "aria-current": key === this.tab ? "page" : null },
        title, h("span.count", {}, number(totals[key] ?? 0))))), this.place);
    if (this.tab === "doubts") await this.showDoubts();
    else if (this.tab === "unreadable") this.showUnreadable();
    else await this.showGroups(this.problems[this.tab]);
  }

  async showDoubts() {
    const doubts = this.problems.doubts;
    this.doubts = new Map(doubts.map((doubt) => [doubt.row, doubt]));
    await store.loadRows([...this.doubts.keys()], true);
    if (!doubts.length) {
      this.targets = undefined;
      refill(this.place, h("p.empty", {}, "No label is in doubt."));
      return;
    }
    const grid = this.hold(new Grid({
      source: new Source([...this.doubts.keys()]), selection: this.selection, label: "Labels in doubt", lines: 3, large: true, settledBy: (record) => this.isSettled(record),
      caption: (record) => this.caption(record),
    }));
    refill(this.place, h("p.note", {}, "Labels that look like another class to a model that had not seen them. ",
      h("kbd", {}, "K"), " keeps the label, ", h("kbd", {}, "Enter"), " takes the model's class, a number gives another."),
    h("div.with-inspector", {}, grid.element, this.inspector.element));
    this.drawGrids();
    grid.element.focus({ preventScroll: true });
  }

  /** Whether a person kept or changed the label. */
  isSettled(record) {
    const doubt = this.doubts.get(record.row);
    return Boolean(doubt && (doubt.confirmed || record.label !== doubt.label));
  }

  caption(record) {
    const doubt = this.doubts.get(record.row);
    const label = record.label === null ? "no label" : store.className(record.label);
    const changed = doubt && record.label !== doubt.label;
    const state = doubt?.confirmed ? "kept by you" : changed ? "changed by you" : `model: ${store.className(doubt?.likeliest ?? NONE)}`;
    return [{ text: label, sign: doubt?.confirmed || changed ? "✓" : "?", kind: doubt?.confirmed || changed ? "labeled" : "doubted" },
      { text: state, kind: "more" },
      { text: doubt?.confirmed || changed ? "" : `its label has ${percent(doubt?.probability)}`, kind: "more" }];
  }

  /** Whose word a doubt is: that of the framed image is of models that learned from its label. */
  reasons(record) {
    const doubt = this.doubts?.get(record.row);
    return doubt ? [["In doubt", `${store.className(doubt.likeliest)}, to the model that had not seen its label`]] : [];
  }

  suggestion(row) {
    return this.doubts?.get(row)?.likeliest ?? null;
  }

  buttons() {
    return this.cards ? [] : [button("Keep the label", () => this.keep(), { key: "K", class: "first" }), button("As the model says", () => this.confirm(), { key: "Enter" })];
  }

  async keep() {
    const rows = this.targets();
    if (!rows.length) return nothingChosen();
    for (const row of rows) if (this.doubts.has(row)) this.doubts.get(row).confirmed = true;
    store.tell("records", rows);
    this.answered(rows);
    if (await confirmLabels(rows) === null) await this.reload();
    return null;
  }

  async confirm() {
    const rows = this.targets();
    const pairs = rows.map((row) => [row, this.suggestion(row)]).filter(([, id]) => id !== null);
    this.answered(rows);
    await confirmSuggestions(pairs, this.source);
  }

  async showGroups(groups) {
    if (!groups.length) {
      this.targets = undefined;
      refill(this.place, h("p.empty", {}, "None was found."));
      return;
    }
    const shown = groups.slice(0, SHOWN_GROUPS);
    await store.loadRows(shown.flat());
    const words = this.tab === "copies" ? "Files with the same pixels. One of each is used; labels that contradict each other are marked."
      : "Images that are nearly the same. They are never on both sides of a fold; labels that contradict each other are marked.";
    this.cards = new DuplicateCards(this.tab === "copies" ? "Copies" : "Near-duplicates", shown);
    this.cards.element.className = "pairs";
    this.targets = () => this.cards.current?.rows ?? [];
    this.framed = "The framed group";
    refill(this.place, h("p.note", {}, words, " A key labels all images of the framed group."), this.cards.element,
      groups.length > shown.length ? h("p.empty", {}, `${number(groups.length - shown.length)} more are not shown.`) : null);
  }

  answered(rows) {
    if (this.cards) this.cards.move("ArrowRight");
    else super.answered(rows);
  }

  close() {
    this.cards?.close();
    super.close();
  }

  showUnreadable() {
    const { unreadable, totals } = this.problems;
    this.targets = undefined;
    refill(this.place, unreadable.length ? [h("p.note", {}, `${count(totals.unreadable ?? unreadable.length, "file")} could not be read; everything else went on without them.`),
      h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Unreadable files" }, h("table.paths", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "file"), h("th.words", { scope: "col" }, "reason"))),
        h("tbody", {}, unreadable.map(({ path, reason }) => h("tr", {}, h("th", { scope: "row" }, path), h("td.words", {}, reason))))))]
      : h("p.empty", {}, "Every file could be read."));
  }

  key(key, event) {
    if (this.cards) return this.groupKey(key, event);
    if (!this.grid) return false;
    const acts = { k: () => this.keep(), Enter: () => this.confirm() };
    if (acts[key]) {
      acts[key]();
      return true;
    }
    return super.key(key, event);
  }

  groupKey(key, event) {
    if (GROUP_KEYS.test(key)) return super.key(key, event);
    if (!key.startsWith("Arrow")) return false;
    if (this.cards.awake) return this.cards.move(key);
    this.cards.current.element.focus();
    return true;
  }

  async reload() {
    const fresh = await get("/api/problems");
    if (this.tab !== "doubts" || !this.doubts) {
      this.problems = fresh;
      if (this.cards) await store.loadRows(this.cards.items.flatMap(({ rows }) => rows), true);
      return;
    }
    for (const doubt of this.doubts.values()) doubt.confirmed = false;
    for (const doubt of fresh.doubts) {
      if (this.doubts.has(doubt.row)) this.doubts.get(doubt.row).confirmed = doubt.confirmed;
    }
    await store.loadRows([...this.doubts.keys()], true);
  }
}
