/** What the page knows of the model and its images, and the one way to change it. */

import { get, post } from "./api.js";
import { fail, toast } from "./notices.js";

export const NONE = -1;
const WINDOW = 2000;
const POLL = 2500;

function recordOf(fields) {
  const [row, name, classId, probability, score, decision, label, cluster, subclass] = fields;
  return { row, name, classId, probability, score, decision, label, cluster, subclass, skipped: false };
}

class Store extends EventTarget {
  overview = null;
  records = new Map();
  /** Labels and skips of this page that undo would take back, the last one last. */
  done = [];
  undone = [];
  last = 0;
  saving = 0;
  #queue = Promise.resolve();

  tell(name, detail = null) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  get classes() {
    return this.overview?.classes ?? [];
  }

  className(id) {
    if (id === NONE) return "none of these";
    return this.classes.find((known) => known.id === id)?.name ?? `class ${id}`;
  }

  takeOverview(overview) {
    const other = this.overview && this.overview.version !== overview.version;
    this.overview = overview;
    this.last = overview.last_action ?? this.last;
    if (other) this.loadRows([...this.records.keys()], true).catch(() => null); // verdicts of another model
    this.tell("overview");
  }

  async loadOverview() {
    this.takeOverview(await get("/api/overview"));
  }

  takeImages(images) {
    return images.map((fields) => {
      const record = recordOf(fields);
      const known = this.records.get(record.row);
      if (known) {
        record.skipped = known.skipped;
        Object.assign(known, record);
      } else this.records.set(record.row, record);
      return record.row;
    });
  }

  /** Read the records of rows that are not known, or of all if they may have changed. */
  async loadRows(rows, again = false) {
    const wanted = again ? rows : rows.filter((row) => !this.records.has(row));
    for (let start = 0; start < wanted.length; start += WINDOW) {
      const answer = await post("/api/images", { rows: wanted.slice(start, start + WINDOW) });
      this.takeImages(answer.images);
    }
    if (wanted.length) this.tell("records", wanted);
  }

  #patch(rows, changes) {
    const before = new Map();
    rows.forEach((row, place) => {
      const record = this.records.get(row);
      if (!record) return;
      const values = typeof changes === "function" ? changes(place) : changes;
      before.set(row, Object.fromEntries(Object.keys(values).map((key) => [key, record[key]])));
      Object.assign(record, values);
    });
    this.tell("records", rows);
    return before;
  }

  #restore(before) {
    for (const [row, values] of before) Object.assign(this.records.get(row) ?? {}, values);
    this.tell("records", [...before.keys()]);
  }

  /** Do one thing after the other, so that the log and the undo have the order of the keys. */
  #enqueue(run) {
    this.saving += 1;
    this.tell("saving");
    const done = this.#queue.then(run).finally(() => {
      this.saving -= 1;
      this.tell("saving");
    });
    this.#queue = done.catch(() => null);
    return done;
  }

  /**
   * Do an action: show it at once, then let the server confirm it or take it back.
   * `changes` are the new values of all rows, or a function that gives those of a place in `rows`;
   * `later` gives changes that are only known once the server has answered.
   * Returns the action's number, or null if the server refused.
   */
  async act(kind, content, { rows = [], changes = {}, later = null, said = "", path = "/api/actions" } = {}) {
    let before = this.#patch(rows, changes);
    try {
      const id = await this.#enqueue(async () => {
        const answer = await post(path, path === "/api/actions" ? { kind, content } : content);
        this.takeOverview(answer.overview);
        const known = later?.(answer) ?? changes;
        if (later) before = this.#patch(rows, known);
        this.done.push({ id: answer.id, rows, before, changes: known });
        this.undone = [];
        return answer.id;
      });
      if (said) toast(said, { action: { text: "Undo", key: "Z", run: () => this.undo() } });
      if (!rows.length) this.tell("reload");
      return id;
    } catch (error) {
      this.#restore(before);
      fail(error);
      if (error.status) this.loadRows(rows, true).catch(() => null);
      return null;
    }
  }

  undo() {
    return this.#step(true);
  }

  redo() {
    return this.#step(false);
  }

  /** Undo or redo one action. */
  async #step(back) {
    try {
      const { words, rows } = await this.#enqueue(() => this.#takeStep(back));
      if (!words) {
        toast(back ? "There is nothing to undo." : "There is nothing to do again.");
        return;
      }
      toast(`${back ? "Undone" : "Done again"}: ${words}.`, { action: back
        ? { text: "Redo", key: "Shift+Z", run: () => this.redo() } : { text: "Undo", key: "Z", run: () => this.undo() } });
      this.tell("stepped", { rows, back });
      if (!rows.length) this.tell("reload");
    } catch (error) {
      fail(error);
      if (error.status === 409) this.refresh().catch(() => null);
    }
  }

  async #takeStep(back) {
    const words = back ? this.overview?.can_undo : this.overview?.can_redo;
    if (!words) return { words: null, rows: [] };
    const [from, to] = back ? [this.done, this.undone] : [this.undone, this.done];
    const known = from.at(-1);
    const { overview } = await post(back ? "/api/undo" : "/api/redo", known ? { expected: known.id } : {});
    if (known) {
      to.push(from.pop());
      await this.#replay(known, back);
    }
    this.takeOverview(overview);
    return { words, rows: known?.rows ?? [] };
  }

  async #replay({ rows, before, changes }, back) {
    if (!rows.length) return;
    if (back) this.#restore(before);
    else this.#patch(rows, changes);
    const unsure = rows.filter((row) => !before.has(row) && this.records.has(row));
    if (back && unsure.length) await this.loadRows(unsure, true);
  }

  /** Change something that no undo of this page takes back in place: nobody else did it. */
  change(path) {
    return this.#enqueue(async () => {
      const { overview } = await post(path);
      this.done = [];
      this.undone = [];
      this.takeOverview(overview);
    });
  }

  /** Someone else changed something: forget what this page would take back, and read again. */
  async refresh() {
    this.done = [];
    this.undone = [];
    await this.loadOverview();
    this.tell("reload");
  }

  /** Ask now and then whether another browser changed something. */
  watch() {
    const look = async () => {
      if (!document.hidden && !this.saving) {
        try {
          const { last_action: last } = await get("/api/last");
          if (last > this.last && !this.saving) {
            await this.refresh();
            toast("Another window changed something: this one shows it now.");
          }
        } catch { /* the banner says it */ }
      }
      setTimeout(look, POLL);
    };
    setTimeout(look, POLL);
  }
}

export const store = new Store();
