/** What one can do with a cluster, from its card or from its grid. */

import { get } from "./api.js";
import { junkClusters, label, nameCluster, promoteClusters, splitCluster } from "./changes.js";
import { askName, choose, pickClass } from "./dialogs.js";
import { button, count } from "./dom.js";
import { fail } from "./notices.js";

const PARTS = [2, 3, 4, 5];

async function askClusterName(one) {
  const name = await askName(`Name the cluster ${one.name}`, { value: one.name, note: "A name alone labels nothing: Promote does." });
  if (name && name !== one.name) await nameCluster(one.number, name);
}

const sizeOf = (clusters) => clusters.reduce((sum, one) => sum + one.size, 0);
const numbersOf = (clusters) => clusters.map((one) => one.number);

/** A new name makes one class of clusters; the name of a class labels their images with it. */
export async function askPromotion(...clusters) {
  const [one] = clusters;
  const size = sizeOf(clusters);
  const picked = await pickClass(`Make ${count(size, "image")} of ${clusters.length > 1 ? count(clusters.length, "cluster") : one.name} a class`);
  if (!picked) return null;
  if (picked.id === null) return promoteClusters(numbersOf(clusters), picked.name, size);
  try {
    const found = await Promise.all(clusters.map(({ number }) => get(`/api/images?set=cluster:${number}&only=rows`)));
    return await label(found.flatMap(({ rows }) => rows), picked.id, "cluster");
  } catch (error) {
    fail(error);
    return null;
  }
}

async function askSplit(one) {
  const choices = PARTS.filter((parts) => parts <= one.size).map((parts) => ({ text: `${parts} parts`, parts }));
  if (!choices.length) return;
  const picked = await choose(`Split ${one.name} into …`, choices, "By what looks alike inside it.");
  if (picked) await splitCluster(one.number, picked.parts);
}

export const junk = (...clusters) => junkClusters(numbersOf(clusters), sizeOf(clusters));

/** The same as keys; `after` is called when something was done. */
export const clusterKeys = (one, after = () => {}) => ({
  r: () => askClusterName(one).then(after),
  p: () => askPromotion(one).then(after),
  x: () => askSplit(one).then(after),
  j: () => junk(one).then(after),
});

export function clusterButtons(one, after = () => {}) {
  const keys = clusterKeys(one, after);
  return [button("Promote", keys.p, { key: "P", class: "first" }), button("Name", keys.r, { key: "R" }),
    button("Split", keys.x, { key: "X" }), button("Junk", keys.j, { key: "J" })];
}
