/** The images that the next key is about, shared by all grids of a screen. */

export class Selection extends EventTarget {
  rows = new Set();

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  get size() {
    return this.rows.size;
  }

  has(row) {
    return this.rows.has(row);
  }

  toggle(row) {
    if (!this.rows.delete(row)) this.rows.add(row);
    this.#changed();
  }

  add(rows) {
    for (const row of rows) this.rows.add(row);
    this.#changed();
  }

  remove(rows) {
    for (const row of rows) this.rows.delete(row);
    this.#changed();
  }

  replace(rows) {
    this.rows = new Set(rows);
    this.#changed();
  }

  clear() {
    if (!this.rows.size) return;
    this.rows.clear();
    this.#changed();
  }
}
