/** Export: the labels in the format that another tool reads. */

import { get, post } from "./api.js";
import { button, count, h, number, refill } from "./dom.js";
import { fail, toast } from "./notices.js";
import { Screen, head } from "./screen.js";
import { store } from "./store.js";

const WHAT = [
  ["labeled", "Labels of people", (counts) => `${count(counts.labeled + counts.none, "image")} that you or your folders named, none of these included.`],
  ["accepted", "And what the model accepts", () => "Images without a label too, by the model's class; the column source says whose word it is."],
  ["all", "Everything", () => "Every image, with the label that it has or none."],
];

const size = (bytes) => (bytes > 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${number(Math.max(1, Math.round(bytes / 1000)))} kB`);

export class ExportScreen extends Screen {
  name = "export";
  title = "Export";

  async open() {
    const { formats, done } = await get("/api/export");
    const usual = formats.some(({ name }) => name === "csv") ? "csv" : formats[0]?.name;
    const option = (group, value, title, about, checked) => h("label.choice-card", {}, h("input", { type: "radio", name: group, value, checked }),
      h("span", {}, h("strong", {}, title), h("small", {}, about)));
    this.result = h("div.export-result", { role: "status" });
    this.done = h("div");
    this.button = button("Export", () => this.run(), { key: "Enter", class: "first" });
    this.form = h("form.export-form", { onsubmit: (event) => { event.preventDefault(); this.run(); } },
      h("fieldset", {}, h("legend", {}, "Which images"), h("div.choice-cards", {}, WHAT.map(([value, title, about], place) => option("what", value, title, about(store.overview.counts), place === 0)))),
      h("fieldset", {}, h("legend", {}, "Format"), h("div.choice-cards", {}, formats.map(({ name, title, about }) => option("format", name, title ?? name, about, name === usual)))),
      h("div.buttons", {}, this.button));
    refill(this.root, head("Export", "Your images are not moved or changed. What is written lies beside the model."), this.form, this.result, this.done);
    this.drawDone(done ?? []);
  }

  drawDone(done) {
    refill(this.done, done.length ? [h("h2", {}, "Made before"), h("ul.files", {}, done.map((one) => h("li", {},
      one.size === null ? h("span", {}, `${one.name}/`) : h("a", { href: `/api/export/${encodeURIComponent(one.name)}`, download: one.name }, one.name),
      one.size ? h("small", {}, size(one.size)) : null)))] : []);
  }

  async run(skipMissing = false) {
    if (this.busy) return;
    this.busy = true;
    this.button.disabled = true;
    const { format, what } = Object.fromEntries(new FormData(this.form));
    refill(this.result, h("p", {}, "Writing …"));
    try {
      const made = await post("/api/export", { format, what, ...(skipMissing ? { skip_missing: true } : {}) });
      const left = Object.entries(made.left_out);
      const more = made.number_left_out - left.length;
      refill(this.result, h("p", {}, h("strong", {}, `${count(made.rows, "image")} written.`)), h("p.path", {}, made.path),
        made.notes.map((note) => h("p.note", {}, note)),
        left.length ? h("details", {}, h("summary", {}, `${count(made.number_left_out, "image")} left out`), h("ul", {}, left.map(([file, reason]) => h("li", {}, `${file}: ${reason}`)), more ? h("li", {}, `and ${number(more)} more`) : null)) : null,
        made.download ? h("a.button.first", { href: made.download, download: made.name }, "Download") : null);
      toast(`Exported ${count(made.rows, "image")}.`);
      const { done } = await get("/api/export");
      this.drawDone(done ?? []);
    } catch (error) {
      refill(this.result, h("p.wrong-note", {}, error.message),
        error.status === 409 ? button("Export without the missing files", () => this.run(true)) : null);
      fail(error);
    } finally {
      this.busy = false;
      this.button.disabled = false;
    }
  }

  key(key) {
    if (key !== "Enter") return false;
    this.run();
    return true;
  }
}
