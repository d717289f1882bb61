/** Overview: what the model made of the pool, its threshold, and what to do next. */

import { get } from "./api.js";
import { count, h, number, percent, refill } from "./dom.js";
import { drawHistogram } from "./histogram.js";
import { keyOf } from "./dialogs.js";
import { Screen, head } from "./screen.js";
import { store } from "./store.js";

const SHARES = [
  ["accepted", "accepted", "as one of the known classes", "#/images/decision:accept"],
  ["rejected", "rejected alone", "like no known class, in no cluster", "#/images/decision:reject"],
  ["novel", "rejected in clusters", "like no known class, alike among themselves", "#/new"],
];

/** The pool in three parts; a model that does not say "novel" still has its clusters. */
function partsOf(counts, clustered) {
  const refused = (counts.rejected ?? 0) + (counts.novel ?? 0);
  const novel = Math.min(refused, counts.novel || clustered);
  return { accepted: counts.accepted ?? 0, rejected: refused - novel, novel };
}

function shareBar(counts) {
  const total = SHARES.reduce((sum, [key]) => sum + (counts[key] ?? 0), 0) || 1;
  return h("div.shares", { "aria-hidden": "true" }, SHARES.map(([key]) => {
    const part = h(`span.${key}`, {});
    part.style.flexGrow = (counts[key] ?? 0) / total;
    return part;
  }));
}

function steps(overview, clustered) {
  const { counts, random, refit } = overview;
  const drawn = random?.drawn ?? 0;
  const left = drawn - (random?.answered ?? 0);
  return [
    ["#/next", "Label next", "G L", `${count(counts.unlabeled, "image")} without a label; those that teach most come first.`],
    ["#/random", "At random", "G Q", left > 0 ? `${number(left)} of ${number(drawn)} drawn images are left to answer.`
      : "Images drawn by lot make the guarantee sharper: only these may set the threshold."],
    ["#/new", "New things", "G N", clustered ? `${count(clustered, "rejected image")} in clusters: name them, or throw them out.` : "No clusters among the rejected images."],
    ["#/refit", "Refit", "G R", refit?.running ? "A refit is running." : refit?.waiting ? "A refit waits for your yes or no." : overview.changed ?? "Nothing changed since the last fit."],
  ];
}

export class OverviewScreen extends Screen {
  name = "overview";
  title = "Overview";

  async open() {
    this.clustered = 0;
    this.draw();
    this.drawn = () => this.draw();
    store.addEventListener("overview", this.drawn);
    await this.reload();
  }

  async reload() {
    const clusters = await get("/api/clusters");
    this.clustered = clusters.reduce((sum, one) => sum + one.size, 0);
    this.draw();
  }

  close() {
    store.removeEventListener("overview", this.drawn);
  }

  draw() {
    const { overview } = store;
    const { counts } = overview;
    const parts = partsOf(counts, this.clustered);
    const pool = parts.accepted + parts.rejected + parts.novel;
    refill(this.root,
      head("Overview", `${count(pool, "image")} of the pool, ${count(overview.classes.length, "class", "classes")}, ${count(counts.labeled, "label")}.`),
      h("section.pool", { "aria-label": "The pool" }, shareBar(parts),
        h("div.numbers", {}, SHARES.map(([key, word, about, href]) => h("a.number", { href, class: key },
          h("strong", {}, number(parts[key])), h("span.word", {}, word),
          h("small", {}, `${percent(parts[key] / Math.max(1, pool))}, ${about}`))))),
      h("section.todo", { "aria-labelledby": "todo" }, h("h2", { id: "todo" }, "What to do next"),
        h("div.steps", {}, steps(overview, parts.novel).map(([href, title, key, words], place) => h(`a.step${place ? "" : ".first"}`, { href },
          h("span.name", {}, title, h("kbd", {}, key)), h("small", {}, words))))),
      h("section.beside", {}, h("div", {}, h("h2", {}, "Scores and the threshold"), drawHistogram(overview.histogram)),
        h("div.words", {}, [["Guarantee", overview.guarantee], ["Strangers", overview.strangers],
          ["Since the last fit", overview.changed ?? "Nothing changed."]].filter(([, words]) => words)
          .map(([title, words]) => h("div", {}, h("h3", {}, title), h("p", {}, words))),
        overview.findings?.length ? h("details", {}, h("summary", {}, "Findings of the fit"),
          h("ul", {}, overview.findings.map((line) => h("li", {}, line)))) : null)),
      h("section", {}, h("h2", {}, "Classes"), this.classTable()));
  }

  classTable() {
    const { classes } = store.overview;
    if (!classes.length) return h("p.empty", {}, "There is no class yet: N makes one on a screen with images.");
    const most = Math.max(1, ...classes.map((one) => one.accepted + one.labels));
    return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Classes in numbers" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "class"), h("th", { scope: "col" }, "key"),
        h("th", { scope: "col" }, "labels"), h("th", { scope: "col" }, "accepted"), h("th.meter-head", { scope: "col" }, h("span.unseen", {}, "share")))),
      h("tbody", {}, classes.map((one) => {
        const meter = h("span.meter", { "aria-hidden": "true" }, h("span.labels"), h("span.accepted"));
        meter.children[0].style.width = `${(100 * one.labels) / most}%`;
        meter.children[1].style.width = `${(100 * one.accepted) / most}%`;
        return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#/class/${one.id}` }, one.name), one.new ? h("small.tag", {}, "new") : null),
          h("td", {}, keyOf(one.id) ? h("kbd", {}, keyOf(one.id)) : ""), h("td", {}, number(one.labels)),
          h("td", {}, number(one.accepted)), h("td.meter-cell", {}, meter));
      }))));
  }
}
