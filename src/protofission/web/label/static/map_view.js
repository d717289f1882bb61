/** Points on a canvas: shapes and colors, moving and zooming, a lasso, and a cross for the keyboard. */

import { h } from "./dom.js";

export const SHAPES = ["●", "■", "▲", "◆", "✚", "▼"];
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b4558b", "#8a6100", "#2f8fc7", "#5b3fa0"];
const DARK = ["#56b4e9", "#e69f00", "#3fc79a", "#e39bc4", "#f0e442", "#7fb8ff", "#b79cff"];
const FULL = 65535;
const EDGE = 14;

const dark = matchMedia("(prefers-color-scheme: dark)");

/** The look of the n-th group: neighbors differ in color and in shape. */
export function lookOf(place) {
  if (place < 0) return { color: "#8b9096", shape: 0, faint: true };
  const colors = dark.matches ? DARK : LIGHT;
  return { color: colors[place % colors.length], shape: place % SHAPES.length, faint: false };
}

function trace(pen, shape, x, y, r) {
  pen.beginPath();
  if (shape === 0) pen.arc(x, y, r, 0, 7);
  else if (shape === 1) pen.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
  else if (shape === 4) {
    const w = 0.4 * r;
    pen.rect(x - w, y - 1.1 * r, 2 * w, 2.2 * r);
    pen.rect(x - 1.1 * r, y - w, 2.2 * r, 2 * w);
  } else {
    const corners = { 2: [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]], 3: [[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]], 5: [[0, 1.2], [1.1, -0.9], [-1.1, -0.9]] }[shape];
    corners.forEach(([dx, dy], place) => pen[place ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
    pen.closePath();
  }
}

/** Whether a point lies in a polygon, by the number of edges to its right. */
export function inside(polygon, x, y) {
  let is = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i, i += 1) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) is = !is;
  }
  return is;
}

export class MapView extends EventTarget {
  /** `selected(row)` tells whether a point is selected; events: "lasso" and "hover" with rows, "recolor". */
  constructor(label, selected) {
    super();
    this.selected = selected;
    this.canvas = h("canvas", {
      tabindex: "0", role: "application", "aria-label": label, "aria-roledescription": "map of images",
      onpointerdown: (event) => this.#down(event), onpointermove: (event) => this.#drag(event),
      onpointerup: (event) => this.#up(event), onpointercancel: () => { this.line = null; this.draw(); },
      onwheel: (event) => this.#wheel(event), onpointerleave: () => this.#tell("hover", []),
      onfocus: () => this.draw(), onblur: () => this.draw(),
    });
    this.x = [];
    this.y = [];
    this.group = [];
    this.zoom = 1;
    this.middle = [FULL / 2, FULL / 2];
    this.moving = false;
    this.cross = null;
    this.reach = 30;
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.canvas);
    this.recolor = () => this.#tell("recolor");
    dark.addEventListener("change", this.recolor);
  }

  close() {
    this.watcher.disconnect();
    dark.removeEventListener("change", this.recolor);
  }

  #tell(name, rows) {
    this.dispatchEvent(new CustomEvent(name, { detail: rows }));
  }

  setPoints(x, y) {
    this.x = x;
    this.y = y;
    this.draw();
  }

  /** `group[row]` is the place of a point's group, -1 for none; `hidden` holds groups not drawn. */
  setGroups(group, hidden = new Set()) {
    this.group = group;
    this.hidden = hidden;
    this.sprites = null;
    this.draw();
  }

  fit() {
    this.zoom = 1;
    this.middle = [FULL / 2, FULL / 2];
    this.draw();
  }

  #scale() {
    const box = this.canvas.getBoundingClientRect();
    return { width: box.width, height: box.height, kx: (this.zoom * (box.width - 2 * EDGE)) / FULL, ky: (this.zoom * (box.height - 2 * EDGE)) / FULL };
  }

  at(row, { width, height, kx, ky } = this.#scale()) {
    return [width / 2 + (this.x[row] - this.middle[0]) * kx, height / 2 - (this.y[row] - this.middle[1]) * ky];
  }

  /** Draw in the next frame, once however often it is asked for. */
  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.#paint(); });
  }

  #sprite(place, ratio, r) {
    const key = `${place} ${ratio} ${r}`;
    this.sprites ??= new Map();
    if (!this.sprites.has(key)) {
      const size = Math.ceil((2 * r + 4) * ratio);
      const tiny = document.createElement("canvas");
      tiny.width = size;
      tiny.height = size;
      const pen = tiny.getContext("2d");
      const { color, shape, faint } = lookOf(place);
      pen.globalAlpha = faint ? 0.55 : 0.85;
      pen.fillStyle = color;
      trace(pen, shape, size / 2, size / 2, (faint ? 0.8 : 1) * r * ratio);
      pen.fill();
      this.sprites.set(key, tiny);
    }
    return this.sprites.get(key);
  }

  #paint() {
    const scale = this.#scale();
    const { width, height } = scale;
    if (!width) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const style = getComputedStyle(this.canvas);
    const [ink, link] = [style.getPropertyValue("--ink"), style.getPropertyValue("--link")];
    const r = Math.max(2.5, Math.min(6, (this.x.length > 5000 ? 2.6 : 3.8) * Math.sqrt(this.zoom)));
    const chosen = [];
    for (let row = 0; row < this.x.length; row += 1) {
      if (this.hidden?.has(this.group[row])) continue;
      const [px, py] = this.at(row, scale);
      if (px < -8 || py < -8 || px > width + 8 || py > height + 8) continue;
      if (this.selected(row)) chosen.push([row, px, py]);
      const sprite = this.#sprite(this.group[row] ?? -1, ratio, r);
      pen.drawImage(sprite, px * ratio - sprite.width / 2, py * ratio - sprite.height / 2);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = ink;
    pen.lineWidth = 1.6;
    for (const [, px, py] of chosen) {
      pen.beginPath();
      pen.arc(px, py, r + 2.2, 0, 7);
      pen.stroke();
    }
    if (this.line?.length > 1) {
      pen.beginPath();
      this.line.forEach(([px, py], place) => pen[place ? "lineTo" : "moveTo"](px, py));
      pen.closePath();
      pen.globalAlpha = 0.14;
      pen.fillStyle = link;
      pen.fill();
      pen.globalAlpha = 1;
      pen.strokeStyle = link;
      pen.lineWidth = 2;
      pen.setLineDash([6, 4]);
      pen.stroke();
      pen.setLineDash([]);
    }
    if (this.cross && document.activeElement === this.canvas) {
      const [px, py] = this.cross;
      pen.strokeStyle = link;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(px, py, this.reach, 0, 7);
      pen.moveTo(px - 6, py);
      pen.lineTo(px + 6, py);
      pen.moveTo(px, py - 6);
      pen.lineTo(px, py + 6);
      pen.stroke();
    }
  }

  #visible(test) {
    const scale = this.#scale();
    const rows = [];
    for (let row = 0; row < this.x.length; row += 1) {
      if (!this.hidden?.has(this.group[row]) && test(...this.at(row, scale))) rows.push(row);
    }
    return rows;
  }

  /** Rows within so many pixels of a place, the nearest first. */
  near(px, py, reach) {
    const away = (row) => { const [x, y] = this.at(row); return (x - px) ** 2 + (y - py) ** 2; };
    return this.#visible((x, y) => (x - px) ** 2 + (y - py) ** 2 <= reach * reach).sort((a, b) => away(a) - away(b));
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.cross = null;
    this.line = [this.#place(event)];
    this.pan = this.moving ? [...this.middle] : null;
    this.shift = event.shiftKey;
  }

  #drag(event) {
    const here = this.#place(event);
    if (!this.line) {
      if (event.pointerType === "mouse") this.#tell("hover", this.near(...here, 9).slice(0, 1));
      return;
    }
    if (this.pan) {
      const { kx, ky } = this.#scale();
      this.middle = [this.pan[0] - (here[0] - this.line[0][0]) / kx, this.pan[1] + (here[1] - this.line[0][1]) / ky];
    } else this.line.push(here);
    this.draw();
  }

  #up(event) {
    const { line, pan } = this;
    this.line = null;
    this.pan = null;
    if (line && !pan) {
      const [px, py] = this.#place(event);
      const small = line.every(([x, y]) => Math.hypot(x - line[0][0], y - line[0][1]) < 5);
      const rows = small ? this.near(px, py, 10).slice(0, 1) : this.#visible((x, y) => inside(line, x, y));
      this.dispatchEvent(new CustomEvent("lasso", { detail: { rows, add: this.shift || event.shiftKey || small, toggle: small } }));
    }
    this.draw();
  }

  #wheel(event) {
    event.preventDefault();
    this.zoomAt(...this.#place(event), Math.exp(-event.deltaY / 400));
  }

  zoomAt(px, py, by) {
    const before = this.#scale();
    const zoom = Math.max(1, Math.min(60, this.zoom * by));
    const [dx, dy] = [px - before.width / 2, py - before.height / 2];
    this.middle[0] += dx / before.kx - dx / ((before.kx * zoom) / this.zoom);
    this.middle[1] -= dy / before.ky - dy / ((before.ky * zoom) / this.zoom);
    this.zoom = zoom;
    if (zoom === 1) this.middle = [FULL / 2, FULL / 2];
    this.draw();
  }

  /** The keyboard's way: arrows move a cross, Space selects what is around it. Returns a sentence, true or false. */
  key(key, event) {
    const { width, height } = this.#scale();
    this.cross ??= [width / 2, height / 2];
    const by = event.shiftKey ? 40 : 12;
    const step = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] }[key];
    if (step) {
      this.cross = [Math.max(0, Math.min(width, this.cross[0] + step[0])), Math.max(0, Math.min(height, this.cross[1] + step[1]))];
      const rows = this.near(...this.cross, this.reach);
      this.#tell("hover", rows.slice(0, 1));
      this.draw();
      return `${rows.length} in reach`;
    }
    const acts = {
      " ": () => this.dispatchEvent(new CustomEvent("lasso", { detail: { rows: this.near(...this.cross, this.reach), add: true, toggle: false } })),
      "+": () => this.zoomAt(...this.cross, 1.3),
      "=": () => this.zoomAt(...this.cross, 1.3),
      "-": () => this.zoomAt(...this.cross, 1 / 1.3),
      "]": () => { this.reach = Math.min(200, this.reach * 1.3); },
      "[": () => { this.reach = Math.max(8, this.reach / 1.3); },
      Home: () => this.fit(),
    };
    if (!acts[key]) return false;
    acts[key]();
    this.draw();
    return true;
  }
}
