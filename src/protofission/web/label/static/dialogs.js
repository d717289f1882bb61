/** Questions that stop the page: a name, a class, the keys. */

import { button, count, h, number, refill } from "./dom.js";
import { KEYS, shortcuts } from "./keys.js";
import { store } from "./store.js";

const LONGEST = 100;

/** Show a dialog until it is answered; resolves to what `answer` was called with, or null. */
function show(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    let value = null;
    const heading = h("h2", { id: "dialog-title" }, title);
    const box = h(`dialog${wide ? ".wide" : ""}`, { "aria-labelledby": "dialog-title" });
    const answer = (given) => { value = given; box.close(); };
    box.append(h("div.head", {}, heading,
      h("button.close", { "aria-label": "Close", onclick: () => answer(null) }, "×")), ...build(answer));
    box.addEventListener("click", (event) => { if (event.target === box) answer(null); });
    box.addEventListener("close", () => {
      box.remove();
      before?.focus?.({ preventScroll: true });
      resolve(value);
    });
    document.body.append(box);
    box.showModal();
    box.querySelector("input[type=text]")?.select();
  });
}

/** Ask for a name; null if the person thought better of it. */
export function askName(title, { value = "", go = "Save", note = "" } = {}) {
  return show(title, (answer) => {
    const input = h("input", { type: "text", maxlength: LONGEST, value, "aria-label": title, autofocus: true });
    const submit = (event) => {
      event.preventDefault();
      const name = input.value.trim();
      if (name) answer(name);
    };
    return [h("form", { onsubmit: submit }, note ? h("p.note", {}, note) : null, input,
      h("div.buttons", {}, h("button.first", { type: "submit" }, go)))];
  });
}

/** Ask for one of a few choices, each `{text, value, note}`. */
export function choose(title, choices, note = "") {
  return show(title, (answer) => [note ? h("p.note", {}, note) : null,
    h("div.choices", {}, choices.map((choice, place) => h("button.choice", {
      onclick: () => answer(choice), autofocus: place === 0,
    }, h("span", {}, choice.text), choice.note ? h("small", {}, choice.note) : null)))].filter(Boolean));
}

/** Ask for a class by its first letters; a name that is new makes a new one: `{id}` or `{name}`. */
export function pickClass(title, { make = true, without = [] } = {}) {
  return show(title, (answer) => {
    const known = store.classes.filter((one) => !without.includes(one.id));
    let found = [];
    let active = 0;
    const list = h("ul", { id: "pick-list", role: "listbox", "aria-label": "Classes" });
    const input = h("input", {
      type: "text", maxlength: LONGEST, role: "combobox", "aria-expanded": "true", "aria-controls": "pick-list",
      "aria-label": title, autocomplete: "off", autofocus: true,
      placeholder: make ? "Type a class, or a new name" : "Type a class",
    });
    const draw = () => {
      const typed = input.value.trim();
      const low = typed.toLowerCase();
      const starts = known.filter((one) => one.name.toLowerCase().startsWith(low));
      const holds = known.filter((one) => !starts.includes(one) && one.name.toLowerCase().includes(low));
      found = [...starts, ...holds].map((one) => ({ id: one.id, name: one.name, labels: one.labels }));
      const same = known.some((one) => one.name.toLowerCase() === low);
      if (make && typed && !same) found.push({ id: null, name: typed });
      active = Math.max(0, Math.min(active, found.length - 1));
      refill(list, found.map((one, place) => h("li", {
        role: "option", id: `pick-${place}`, "aria-selected": String(place === active), class: place === active ? "active" : "",
        onclick: () => answer(one),
      }, h("span", {}, one.id === null ? `New class “${one.name}”` : one.name),
      one.id === null ? null : h("small", {}, keyOf(one.id) ? h("kbd", {}, keyOf(one.id)) : null, ` ${count(one.labels, "label")}`))));
      if (!found.length) list.append(h("li.nothing", {}, make ? "Type a name to make the first class." : "No class has that name."));
      input.setAttribute("aria-activedescendant", found.length ? `pick-${active}` : "");
      list.querySelector(".active")?.scrollIntoView({ block: "nearest" });
    };
    input.addEventListener("input", () => { active = 0; draw(); });
    input.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        active = (active + step + found.length) % Math.max(1, found.length);
        draw();
        event.preventDefault();
      } else if (event.key === "Enter" && found[active]) {
        event.preventDefault();
        answer(found[active]);
      }
    });
    draw();
    return [input, list];
  });
}

/** The key of a class, "1" to "9", or null. */
export function keyOf(id) {
  const place = store.classes.findIndex((one) => one.id === id);
  return place >= 0 && place < 9 ? String(place + 1) : null;
}

export function showHelp() {
  return show("Keys", () => {
    const toggle = h("input", {
      type: "checkbox", checked: shortcuts.on, onchange: (event) => shortcuts.set(event.target.checked),
    });
    return [h("div.keys", {}, KEYS.map(([title, rows]) => h("section", {}, h("h3", {}, title),
      h("dl", {}, rows.map(([keys, words]) => h("div", {},
        h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, words))))))),
    h("label.option", {}, toggle, " Single keys act. Turn this off if you speak to your computer or use letters otherwise."),
    h("p.note", {}, `A key is about the selected images, or about the one with the frame if none is selected. ${
      store.classes.length > 9 ? `Of ${number(store.classes.length)} classes the first nine have a key: L finds the others by name. ` : ""
    }Nothing is asked twice, since Z takes every change back.`),
    h("div.buttons", {}, button("Close", (event) => event.target.closest("dialog").close(), { class: "first" }))];
  }, { wide: true });
}
