/** What a person can do, each as one action with a sentence of what was done. */

import { count, number } from "./dom.js";
import { toast } from "./notices.js";
import { NONE, store } from "./store.js";

export function label(rows, classId, source) {
  if (!rows.length) return Promise.resolve(null);
  const what = count(rows.length, "image");
  const said = classId === null ? `Took the label of ${what} back.`
    : classId === NONE ? `Labeled ${what} as none of these.`
      : `Labeled ${what} as ${store.className(classId)}.`;
  const changes = { label: classId, skipped: false };
  return store.act("label", { images: rows, class_id: classId, source }, { rows, changes, said });
}

export function skip(rows) {
  if (!rows.length) return Promise.resolve(null);
  const said = `Skipped ${count(rows.length, "image")}.`;
  return store.act("skip", { images: rows }, { rows, changes: { skipped: true }, said });
}

/** Give many images the class that is suggested for each: one key, and one key takes it back. */
export function confirmSuggestions(pairs, source) {
  const [images, classes] = [pairs.map(([row]) => row), pairs.map(([, classId]) => classId)];
  if (new Set(classes).size < 2) return label(images, classes[0], source);
  const said = `Labeled ${count(images.length, "image")} as suggested, in ${number(new Set(classes).size)} classes.`;
  const changes = (place) => ({ label: classes[place], skipped: false });
  return store.act("label_each", { images, classes, source }, { rows: images, changes, said });
}

export const addClass = (name) => store.act("add_class", { name }, { said: `Added the class ${name}.` });

/** Make a class and label images with it: its number is known when the server has made it. */
export function labelAsNew(rows, name, source) {
  const changes = () => ({ label: store.classes.find((one) => one.name === name)?.id ?? null, skipped: false });
  return store.act("label_as_new", { images: rows, name, source },
    { rows, later: changes, said: `Labeled ${count(rows.length, "image")} as the new class ${name}.` });
}

export const renameClass = (id, name) => store.act("rename_class", { class_id: id, name },
  { said: `Renamed ${store.className(id)} to ${name}.` });

export const mergeClasses = (classes, into) => store.act("merge_classes", { classes, into },
  { said: `Merged ${classes.map((id) => store.className(id)).join(", ")} into ${store.className(into)}.` });

export const nameSubclass = (id, subclass, name) => store.act("name_subclass", { class_id: id, subclass, name },
  { said: `Named a sub-class ${name}.` });

export const mergeSubclasses = (id, subclasses, into) => store.act("merge_subclasses",
  { class_id: id, subclasses, into }, { said: `Merged ${number(subclasses.length + 1)} sub-classes into one.` });

export const promoteSubclass = (id, subclass, name) => store.act("promote_subclass", { class_id: id, subclass, name },
  { said: `Made a class of the sub-class: ${name}.` });

export const dissolveSubclasses = (id) => store.act("dissolve_subclasses", { class_id: id },
  { said: `The sub-classes of ${store.className(id)} are not a real division.` });

export const nameCluster = (cluster, name) => store.act("name_cluster", { cluster, name },
  { said: `Named a cluster ${name}.` });

export const mergeClusters = (clusters, into) => store.act("merge_clusters", { clusters, into },
  { said: `Merged ${number(clusters.length + 1)} clusters into one.` });

export const splitCluster = (cluster, parts) => store.act("split_cluster", { parts },
  { said: `Split a cluster into ${parts}.`, path: `/api/clusters/${cluster}/split` });

export const promoteClusters = (clusters, name, size) => store.act("promote_clusters", { clusters, name },
  { said: `Made a class of ${count(size, "image")}: ${name}.` });

export const junkClusters = (clusters, size) => store.act("junk_clusters", { clusters },
  { said: `Labeled ${count(size, "image")} as none of these.` });

export const confirmLabels = (rows) => store.act("confirm_labels", { images: rows },
  { said: `Kept the label of ${count(rows.length, "image")}.` });

export const drawRandom = (n) => store.act("draw_random", { n },
  { said: `Drew ${count(n, "image")} at random, or as many as were left.`, path: "/api/random" });

export const nothingChosen = () => toast("No image is selected: move to one with the arrows, or click it.");
