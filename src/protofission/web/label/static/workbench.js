/** The workbench: which screen is shown, the navigation, and the keys that work everywhere. */

import { get } from "./api.js";
import { drawBar } from "./bar.js";
import { keyOf, showHelp } from "./dialogs.js";
import { button, h, number, refill } from "./dom.js";
import { GO, listenToKeys } from "./keys.js";
import { fail, watchConnection } from "./notices.js";
import { head, setTileSize } from "./screen.js";
import { ClassScreen } from "./screen_class.js";
import { ClassesScreen } from "./screen_classes.js";
import { ExportScreen } from "./screen_export.js";
import { ImagesScreen } from "./screen_images.js";
import { MapScreen } from "./screen_map.js";
import { NewScreen } from "./screen_new.js";
import { NextScreen, RandomScreen } from "./screen_next.js";
import { OverviewScreen } from "./screen_overview.js";
import { ProblemsScreen } from "./screen_problems.js";
import { RefitScreen } from "./screen_refit.js";
import { SimilarScreen } from "./screen_similar.js";
import { store } from "./store.js";

const SCREENS = {
  overview: OverviewScreen, classes: ClassesScreen, class: ClassScreen, new: NewScreen, next: NextScreen, random: RandomScreen,
  map: MapScreen, images: ImagesScreen, similar: SimilarScreen, problems: ProblemsScreen, refit: RefitScreen, export: ExportScreen,
};

const NAVIGATION = [
  ["overview", "Overview", "#/overview", "G O"],
  ["next", "Label next", "#/next", "G L"],
  ["new", "New things", "#/new", "G N"],
  ["classes", "Classes", "#/classes", "G C"],
  ["images", "Images", "#/images/all", "G I"],
  ["map", "Map", "#/map", "G M"],
  ["similar", "Similar", "#/similar", "F"],
  ["problems", "Problems", "#/problems", "G P"],
  ["refit", "Refit", "#/refit", "G R"],
  ["export", "Export", "#/export", "G E"],
];

let screen = null;
let opened = 0;
/** The name that the navigation marks: of the screen that is shown, or that is being opened. */
let current = "overview";

/** The parts of the address; none of one that is no address, as a mistyped percent sign makes it. */
function addressed() {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return [];
  }
}

/** Open the screen that the address names. */
async function route() {
  const [name, ...given] = addressed();
  const Kind = SCREENS[name] ?? OverviewScreen;
  const main = document.getElementById("screen");
  const root = h("div");
  opened += 1;
  const mine = opened;
  screen?.close();
  screen = null;
  drawBar(null);
  const next = new Kind(root);
  main.setAttribute("aria-busy", "true");
  main.dataset.screen = name ?? "overview";
  main.replaceChildren(root); // a screen of its own: one that was left may still be reading
  current = { class: "classes", random: "next" }[name] ?? name ?? "overview";
  drawRail();
  try {
    window.scrollTo(0, 0);
    await next.open(...given);
  } catch (error) {
    refill(root, head(next.title || "Not found"), h("p.empty", { role: "alert" }, error.message ?? String(error)));
    if (error.status === undefined) console.error(error);
  }
  if (mine !== opened) {
    next.close();
    return;
  }
  screen = next;
  current = screen.name;
  main.removeAttribute("aria-busy");
  document.title = `${screen.title || "Workbench"} · protofission`;
  screen.selection?.addEventListener("change", () => drawBar(screen));
  drawBar(screen);
  drawRail();
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
}

function drawRail() {
  const { overview } = store;
  if (!overview) return;
  const rail = document.getElementById("rail");
  const state = JSON.stringify([current, screen?.id, overview.model, overview.classes, overview.can_undo, overview.can_redo, store.saving > 0, overview.refit?.running, overview.refit?.waiting]);
  if (rail.dataset.state === state) return;
  rail.dataset.state = state;
  const focused = rail.contains(document.activeElement) ? document.activeElement.dataset.part : null;
  const undo = button("Undo", () => store.undo(), { key: "Z", title: overview.can_undo ?? "Nothing to undo", disabled: !overview.can_undo, data: { part: "undo" } });
  const redo = button("Redo", () => store.redo(), { key: "⇧Z", title: overview.can_redo ?? "Nothing to do again", disabled: !overview.can_redo, data: { part: "redo" } });
  const mark = { refit: overview.refit?.running ? "…" : overview.refit?.waiting ? "!" : null };
  refill(rail,
    h("div.brand", {}, h("a", { href: "#/overview" }, h("span.kicker", {}, "protofission"), h("strong", { title: overview.model }, overview.model)),
      h("span.saved", { "aria-hidden": "true" }, store.saving ? "saving …" : "saved")),
    h("div.history", {}, undo, redo, button("Keys", showHelp, { key: "?" })),
    h("nav", { "aria-label": "Screens" }, NAVIGATION.map(([name, title, href, key]) => h("a", {
      href, "aria-current": current === name ? "page" : null, data: { part: name } },
    h("span", {}, title, mark[name] ? h("span.mark", {}, mark[name]) : null), h("kbd", { "aria-hidden": "true" }, key)))),
    h("nav.class-list", { "aria-label": "Classes" }, h("p.kicker", {}, "Classes and their keys"), overview.classes.map((one) => h("a", {
      href: `#/class/${one.id}`, title: one.name, "aria-current": screen?.id === one.id && current === "classes" ? "page" : null },
    h("kbd", { class: keyOf(one.id) ? "" : "none" }, keyOf(one.id) ?? ""), h("span.words", {}, one.name), h("small", {}, number(one.labels))))));
  if (focused) rail.querySelector(`[data-part="${focused}"]`)?.focus();
  if (window.innerWidth < 1000) rail.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function pressed(key, event) {
  if (key.startsWith("g ")) {
    const where = GO[key[2]];
    const row = where === "#/similar" ? screen?.grid?.activeRow ?? null : null;
    location.hash = row === null ? where : `${where}/${row}`;
    return true;
  }
  if (key === "z") store.undo();
  else if (key === "Z") store.redo();
  else if (key === "?") showHelp();
  else return screen?.key(key, event) ?? false;
  return true;
}

async function reload() {
  try {
    await screen?.reload();
  } catch (error) {
    fail(error);
  }
}

async function start() {
  setTileSize(0);
  watchConnection(async () => {
    await get("/api/last");
    if (store.overview) await store.refresh();
    else await begin();
  });
  store.addEventListener("overview", () => { drawRail(); if (screen) drawBar(screen); });
  store.addEventListener("saving", drawRail);
  store.addEventListener("records", () => { if (screen) drawBar(screen); });
  store.addEventListener("reload", reload);
  window.addEventListener("hashchange", route);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("screen").focus();
  });
  listenToKeys(pressed);
  await begin();
  store.watch();
}

async function begin() {
  try {
    await store.loadOverview();
  } catch (error) {
    refill(document.getElementById("screen"), h("p.empty", {}, error.message));
    return;
  }
  await route();
}

start();
