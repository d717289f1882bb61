/** Toasts, the banner of a lost connection, and what a screen reader is told. */

import { connection } from "./api.js";
import { button, h, refill } from "./dom.js";

const SECONDS = 6;
const MOST_WRONG = 3;

/** Say a sentence to a screen reader, even if it is the same as the last. */
export function say(sentence) {
  const live = document.getElementById("live");
  live.textContent = live.textContent === sentence ? `${sentence}\u00a0` : sentence;
}

/** Show a sentence for a few seconds, with a button if there is something to do about it. */
export function toast(sentence, { action = null, wrong = false } = {}) {
  const box = document.getElementById("toasts");
  const item = h(wrong ? "div.toast.wrong" : "div.toast", wrong ? { role: "alert" } : {},
    h("span.sign", { "aria-hidden": "true" }, wrong ? "!" : "✓"), h("p", {}, sentence),
    action ? button(action.text, () => { item.remove(); action.run(); }, { key: action.key }) : null,
    h("button.close", { "aria-label": "Close this notice", onclick: () => item.remove() }, "×"));
  // One that is right gives way to the next: its button would undo the next, and it covers images.
  const before = [...box.querySelectorAll(wrong ? ".toast.wrong" : ".toast:not(.wrong)")];
  before.slice(0, wrong ? 1 - MOST_WRONG : undefined).forEach((one) => one.remove());
  box.append(item);
  let timer = 0;
  const leave = () => { timer = setTimeout(() => item.remove(), 1000 * (wrong ? 2 * SECONDS : SECONDS)); };
  item.addEventListener("pointerenter", () => clearTimeout(timer));
  item.addEventListener("pointerleave", leave);
  leave();
  if (!wrong) say(sentence);
}

export const fail = (error) => toast(error.message ?? String(error), { wrong: true });

/** Show the banner while the server is away, and try again by and by. */
export function watchConnection(retry) {
  const banner = document.getElementById("banner");
  let timer = 0;
  let wait = 2;
  const again = async () => {
    clearTimeout(timer);
    try {
      await retry();
    } catch {
      wait = Math.min(wait * 1.5, 15);
    }
  };
  connection.addEventListener("lost", ({ detail }) => {
    clearTimeout(timer);
    if (banner.hidden || banner.dataset.sentence !== detail) {
      banner.dataset.sentence = detail;
      refill(banner, h("p", {}, detail), button("Try now", again));
      banner.hidden = false;
    }
    timer = setTimeout(again, 1000 * wait);
  });
  connection.addEventListener("back", () => {
    clearTimeout(timer);
    wait = 2;
    if (!banner.hidden) toast("The workbench answers again.");
    banner.hidden = true;
  });
}
