/** Scores of the pool and of known images as a drawing, a sentence and a table. */

import { h, percent, svg } from "./dom.js";

const WIDE = 640;
const HIGH = 210;
/** Two bars that are cut share one text if they begin nearer than this. */
const APART = 80;

function sentenceOf({ edges, known, pool, threshold }) {
  if (threshold === null || threshold === undefined) return "There is no threshold.";
  const below = (shares) => shares.reduce((sum, share, bin) => {
    const part = Math.max(0, Math.min(1, (threshold - edges[bin]) / (edges[bin + 1] - edges[bin])));
    return sum + share * part;
  }, 0) / (shares.reduce((sum, share) => sum + share, 0) || 1);
  return `About ${percent(below(pool))} of the pool and ${percent(below(known))} of the known images lie below the threshold of ${threshold.toFixed(3)}.`;
}

/** Round numbers within a range, four to eight of them. */
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((part) => part >= rough) ?? power;
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + 1e-9; place += 1) found.push(place * step);
  return found;
}

export function drawHistogram(histogram) {
  if (!histogram?.edges?.length) return h("p.empty", {}, "There are no scores to draw.");
  const { edges, known, pool, threshold } = histogram;
  const low = edges[0];
  const x = (value) => (WIDE * (value - low)) / (edges.at(-1) - low || 1);
  const ranked = [...pool, ...known].sort((a, b) => b - a);
  const most = Math.max(1e-9, Math.min(ranked[0], 2.2 * (ranked[2] ?? ranked[0])));
  const y = (share) => HIGH - (HIGH - 24) * Math.min(1, share / most);
  const sentence = sentenceOf(histogram);
  const bars = pool.map((share, bin) => {
    const left = x(edges[bin]);
    const width = Math.max(1, x(edges[bin + 1]) - left - 1.5);
    const above = threshold === null || (edges[bin] + edges[bin + 1]) / 2 >= threshold;
    return [svg("rect", { class: above ? "above" : "below", x: left, y: y(share), width, height: HIGH - y(share) },
      svg("title", {}, `${edges[bin].toFixed(2)} to ${edges[bin + 1].toFixed(2)}: ${percent(share)} of the pool, ${percent(known[bin])} of the known images`))];
  });
  const cut = pool.flatMap((share, bin) => (share > most ? [{ words: percent(share), left: x(edges[bin]), right: x(edges[bin + 1]) }] : []));
  const together = cut.length > 1 && cut.at(-1).left - cut[0].left < APART;
  const cuts = (together ? [{ words: cut.map((one) => one.words).join(", "), left: cut[0].left, right: cut.at(-1).right }] : cut).map(({ words, left, right }) => {
    const end = right > WIDE / 2;
    return svg("text", { class: "cut", x: end ? right : left, y: 18, "text-anchor": end ? "end" : "start" }, `↑ ${words}`);
  });
  const line = known.flatMap((share, bin) => [[x(edges[bin]), y(share)], [x(edges[bin + 1]), y(share)]]);
  const right = threshold !== null && x(threshold) > WIDE / 2;
  return h("figure.scores", {},
    svg("svg", { viewBox: `-8 -6 ${WIDE + 16} ${HIGH + 56}`, role: "img", "aria-label": `Scores of the pool and of known images. ${sentence}` },
      bars, cuts, svg("polyline", { class: "known", points: line.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" ") }),
      svg("line", { class: "axis", x1: 0, x2: WIDE, y1: HIGH, y2: HIGH }),
      ticks(low, edges.at(-1)).map((value) => svg("text", { x: x(value), y: HIGH + 20, "text-anchor": x(value) < 9 ? "start" : x(value) > WIDE - 9 ? "end" : "middle" },
        String(Number(value.toFixed(3))))),
      svg("text", { x: WIDE / 2, y: HIGH + 42, "text-anchor": "middle" }, "ID score"),
      threshold === null ? null : [svg("line", { class: "threshold", x1: x(threshold), x2: x(threshold), y1: 26, y2: HIGH + 5 }),
        svg("text", { class: "threshold-text", x: x(threshold) + (right ? -7 : 7), y: 40, "text-anchor": right ? "end" : "start" }, `threshold ${threshold.toFixed(3)}`)]),
    h("figcaption", {}, h("span.key.below", { "aria-hidden": "true" }), " pool, rejected ", h("span.key.above", { "aria-hidden": "true" }), " pool, accepted ",
      h("span.key.known", { "aria-hidden": "true" }), " known images that no model had seen; shares of each. ", sentence),
    h("details", {}, h("summary", {}, "The same as a table"), h("div.scroll.short", { tabindex: "0", role: "region", "aria-label": "Scores in numbers" },
      h("table", {}, h("thead", {}, h("tr", {}, ["ID score", "pool", "known"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", {}, pool.map((share, bin) => h("tr", {}, h("th", { scope: "row" }, `${edges[bin].toFixed(3)} to ${edges[bin + 1].toFixed(3)}`),
          h("td", {}, percent(share)), h("td", {}, percent(known[bin])))))))));
}
