/** Lists of rows for a grid: all are known from the start, their records come as they are seen. */

import { get } from "./api.js";
import { store } from "./store.js";

const PAGE = 200;

/** Rows in an order; `need` reads the records of a window of them. */
export class Source {
  constructor(rows) {
    this.rows = rows;
    this.asked = new Set();
  }

  get total() {
    return this.rows.length;
  }

  /** Read the pages of records that a window touches; each is asked for once. */
  async need(first, last) {
    const pages = [];
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (!this.asked.has(page)) pages.push(page);
    }
    await Promise.all(pages.map(async (page) => {
      this.asked.add(page);
      try {
        await store.loadRows(this.rows.slice(page * PAGE, (page + 1) * PAGE));
      } catch {
        this.asked.delete(page);
      }
    }));
  }

  /** Forget that records were read, so that they are read again when seen. */
  stale(first, last) {
    this.asked.clear();
    return store.loadRows(this.rows.slice(first, last + 1), true);
  }
}

/** The rows of a set of the server, e.g. "cluster:3". */
export async function setSource(set) {
  const { rows } = await get(`/api/images?set=${encodeURIComponent(set)}&only=rows`);
  return new Source(rows);
}
