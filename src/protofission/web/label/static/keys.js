/** Keys, and which are pressed where. */

export const KEYS = [
  ["Label", [
    [["1", "…", "9"], "this class"],
    [["0"], "none of these"],
    [["N", "L"], "a class by its name, or a new one"],
    [["Enter"], "what the model suggests"],
    [["Shift+Enter"], "the suggestions of all that are left"],
    [["S"], "skip"],
    [["Backspace"], "take the label back"],
    [["K"], "keep a label that is in doubt"],
  ]],
  ["Select", [
    [["←", "→", "↑", "↓"], "move"],
    [["Space"], "select or not"],
    [["Shift+arrows"], "select up to here"],
    [["A"], "all"],
    [["Esc"], "none"],
    [["V"], "look at it closely"],
    [["F"], "find similar images"],
    [["+", "−"], "larger or smaller images"],
  ]],
  ["Undo", [
    [["Z"], "undo"],
    [["Shift+Z"], "redo"],
  ]],
  ["Classes and clusters", [
    [["R"], "rename"],
    [["M"], "merge with the marked ones"],
    [["P"], "promote to a class"],
    [["X"], "split"],
    [["J"], "junk: none of these"],
    [["D"], "not a real division"],
    [["Enter"], "open"],
  ]],
  ["Go to", [
    [["G", "O"], "overview"],
    [["G", "C"], "classes"],
    [["G", "N"], "new things"],
    [["G", "L"], "label next"],
    [["G", "Q"], "images at random"],
    [["G", "M"], "map"],
    [["G", "I"], "all images"],
    [["G", "P"], "problems"],
    [["G", "R"], "refit"],
    [["G", "E"], "export"],
    [["?"], "these keys"],
  ]],
];

export const GO = {
  o: "#/overview", c: "#/classes", n: "#/new", l: "#/next", q: "#/random", m: "#/map", i: "#/images/all",
  p: "#/problems", r: "#/refit", e: "#/export", s: "#/similar",
};

const STORED = "protofission.single-keys";

export const shortcuts = {
  on: remembered(STORED, "on") === "on",
  set(on) {
    this.on = on;
    remember(STORED, on ? "on" : "off");
  },
};

export function remembered(name, otherwise) {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* a browser that keeps nothing */ }
}

const typing = (element) => element.matches?.("input:not([type=checkbox]):not([type=radio]), textarea, select");
/** Whether an element takes a key itself; a browser does nothing for Enter on a box or a radio button. */
const takes = (element, key) => (key === "Enter" && element.matches?.("button, a, summary"))
  || (key === " " && element.matches?.("button, a, summary, input"));

/**
 * Call `act(key, event)` for keys that are not for a field, a button or a dialog.
 * A key is "z", "Z" (with Shift), "Enter", "g o"; `act` returns true if it took the key.
 */
export function listenToKeys(act) {
  let first = null;
  let timer = 0;
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey) return;
    const dialog = document.querySelector("dialog[open]:not(.look)");
    if (dialog || typing(event.target)) return;
    if (event.key === "Escape" && document.querySelector("dialog[open]")) return; // the browser closes it
    let { key } = event;
    if (event.ctrlKey || event.metaKey) {
      if (key.toLowerCase() !== "z") return;
      key = event.shiftKey ? "Z" : "z";
    } else if (!shortcuts.on && key.length === 1 && key !== " " && key !== "?") return;
    if (takes(event.target, key)) return;
    if (key.length === 1 && /[a-z]/i.test(key)) key = event.shiftKey ? key.toUpperCase() : key.toLowerCase();
    if (first) {
      clearTimeout(timer);
      first = null;
      if (GO[key]) {
        event.preventDefault();
        act(`g ${key}`, event);
        return;
      }
    }
    if (key === "g") {
      first = key;
      timer = setTimeout(() => { first = null; }, 1500);
      return;
    }
    if (act(key, event)) event.preventDefault();
  });
}
