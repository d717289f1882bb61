/** Elements are made here, and text gets into them as text: a name with markup in it is a name. */

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.setAttribute("class", `${element.getAttribute("class") ?? ""} ${value}`.trim());
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "text") element.textContent = value;
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element by "tag.class.class", its properties, and its children: texts, elements or lists of them. */
export function h(spec, props = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  if (tag === "button") element.type = "button";
  return fill(element, props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

/** A button with the key that does the same. */
export function button(text, onclick, { key = null, ...props } = {}) {
  return h("button", { onclick, ...(key ? { "aria-keyshortcuts": key } : {}), ...props },
    h("span", {}, text), key ? h("kbd", { "aria-hidden": "true" }, key) : null);
}

/** Put children in the place of all that an element has. */
export function refill(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const number = (value) => Number(value).toLocaleString("en-US");

export const percent = (share) => {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  return `${value > 99 && value < 100 ? Math.floor(value * 10) / 10 : Math.round(value)}\u00a0%`;
};

export const count = (value, word, words = `${word}s`) => `${number(value)} ${value === 1 ? word : words}`;

/** The name of a file without its folders. */
export const fileName = (path) => String(path).split("/").at(-1);

/** Wait until calls have stopped for a while, then run once. */
export function settled(run, wait = 120) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), wait);
  };
}
