/** Refit: train again on the labels of now, compare with before, keep it or go back. */

import { get, post } from "./api.js";
import { thumb } from "./cards.js";
import { button, count, h, number, percent, refill } from "./dom.js";
import { fail, say, toast } from "./notices.js";
import { Screen, head } from "./screen.js";
import { store } from "./store.js";

const POLL = 700;
const SHOWN = 12;
const WORDS = { labels: "held-out labels", random: "of them drawn at random", accuracy: "right on held-out labels",
  kept: "of known images drawn at random, kept", above: "pairs in which a label scores above an image of the pool" };
const SHARES = new Set(["accuracy", "kept", "above"]);
const MOVED = [["accepted", "Newly accepted"], ["rejected", "Newly rejected"], ["renamed", "Of another class now"]];

function shown(key, side) {
  const value = side?.[key];
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (!SHARES.has(key)) return Number.isInteger(value) ? number(value) : value.toFixed(3);
  const range = side[`${key}_interval`];
  const low = range ? ` (${percent(range[0])} to ${percent(range[1])})` : "";
  return [`${(100 * value).toFixed(1)}\u00a0%`, low ? h("small", {}, low) : null];
}

function difference(key, before, after) {
  if (typeof before !== "number" || typeof after !== "number" || before === after) return "";
  const by = after - before;
  const sign = by > 0 ? "+" : "−";
  if (SHARES.has(key)) return `${sign}${(100 * Math.abs(by)).toFixed(1)} points`;
  return `${sign}${Number.isInteger(by) ? number(Math.abs(by)) : Math.abs(by).toFixed(3)}`;
}

export class RefitScreen extends Screen {
  name = "refit";
  title = "Refit";

  async open() {
    this.place = h("div", { "aria-live": "polite" });
    refill(this.root, head("Refit", "Train again on all labels of now, in the background, on features that are already there. Nothing changes until you keep it."), this.place);
    await this.look();
  }

  close() {
    clearTimeout(this.timer);
    this.closed = true;
  }

  async look() {
    clearTimeout(this.timer);
    const status = await get("/api/refit");
    if (this.closed) return;
    this.draw(status);
    if (status.running) this.again(POLL);
    else if (this.wasRunning) say(status.error ?? "The refit is done.");
    this.wasRunning = status.running;
  }

  /** Look again by and by, however often the server is away in between. */
  again(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look().catch(() => { if (!this.closed) this.again(3000); }), wait);
  }

  async start() {
    try {
      await post("/api/refit", {});
      await this.look();
    } catch (error) {
      fail(error);
    }
  }

  async stop() {
    try {
      await post("/api/refit/stop", {});
      await this.look();
    } catch (error) {
      fail(error);
    }
  }

  /** Once, however often the key is pressed until the server has answered. */
  async decide(path, sentence) {
    if (this.deciding) return;
    this.deciding = true;
    try {
      await store.change(path);
      toast(sentence);
      await this.look();
    } catch (error) {
      fail(error);
    } finally {
      this.deciding = false;
    }
  }

  draw(status) {
    this.status = status;
    const { overview } = store;
    const parts = [];
    if (status.running) {
      const part = status.total ? status.done / status.total : null;
      parts.push(h("section.running", {}, h("p.stage", {}, status.stage ? `${status.stage} …` : "Starting …"),
        h("progress", { max: "1", ...(part === null ? {} : { value: part }), "aria-label": "Progress of the refit" }),
        h("p.facts", {}, status.total ? `${number(status.done)} of ${number(status.total)}` : ""),
        h("p.note", {}, "You can go on labeling: what you answer now is for the next refit."),
        button("Stop", () => this.stop(), { key: "Esc" })));
    }
    if (status.error) parts.push(h("p.wrong-note", { role: "alert" }, status.error));
    if (status.result && !status.running) parts.push(this.result(status));
    if (!status.running && !status.waiting) {
      parts.push(h("section.start", {}, h("p", {}, overview.changed ?? "No label changed since the last fit: a refit would give the same model."),
        h("div.buttons", {}, button("Refit now", () => this.start(), { key: "Enter", class: "first" }),
          overview.version > 0 ? button("Back to the model before", () => this.decide("/api/refit/revert", "The model before is back.")) : null)));
    }
    refill(this.place, parts);
  }

  result({ result, waiting }) {
    const { before, after } = result;
    const keys = [...new Set([...Object.keys(WORDS), ...Object.keys(before ?? {}), ...Object.keys(after ?? {})])]
      .filter((key) => typeof (after?.[key] ?? before?.[key]) === "number");
    return h("section.result", {}, h("h2", {}, waiting ? "Keep it?" : "The last refit"),
      waiting ? h("div.buttons", {}, button("Keep the new model", () => this.decide("/api/refit/keep", "The new model is kept."), { key: "Enter", class: "first" }),
        button("Go back", () => this.decide("/api/refit/revert", "The refit is thrown away; the model is as before."), { key: "Esc" })) : null,
      result.sentences?.length ? h("div.words", {}, result.sentences.map((line) => h("p", {}, line))) : null,
      keys.length ? h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Before and after" }, h("table.compare", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "on the same held-out labels"), ["before", "after", "change"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, WORDS[key] ?? key.replaceAll("_", " ")),
          h("td", {}, shown(key, before)), h("td", {}, shown(key, after)), h("td", {}, difference(key, before?.[key], after?.[key]))))))) : null,
      result.moved?.length ? h("details", { open: result.moved.length < 12 }, h("summary", {}, "What moves"),
        h("ul", {}, result.moved.map((line) => h("li", {}, line)))) : null,
      MOVED.filter(([key]) => result.images?.[key]?.count).map(([key, title]) => h("section.moved", {}, h("h3", {}, `${title}: ${count(result.images[key].count, "image")}`),
        h("div.small-thumbs", { "aria-hidden": "true" }, result.images[key].rows.slice(0, SHOWN).map((row) => thumb(row))))));
  }

  key(key) {
    const { status } = this;
    if (!status) return false;
    if (status.running) {
      if (key === "Escape") this.stop();
      return key === "Escape";
    }
    if (key === "Enter") {
      if (status.waiting) this.decide("/api/refit/keep", "The new model is kept.");
      else this.start();
      return true;
    }
    if (key === "Escape" && status.waiting) {
      this.decide("/api/refit/revert", "The refit is thrown away; the model is as before.");
      return true;
    }
    return false;
  }

  async reload() {
    await this.look();
  }
}

