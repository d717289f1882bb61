/** Lists text that is hard to see or in no landmark, and controls that are named otherwise than they look. */
() => {
  const found = [];
  const painter = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color) => {
    painter.clearRect(0, 0, 1, 1);
    painter.fillStyle = color;
    painter.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = [...painter.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
    const [x, y, z] = [r, g, b].map((c) => (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4));
    return { alpha: a, value: .2126 * x + .7152 * y + .0722 * z };
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      if (style.opacity < 1 || style.backgroundImage !== "none") return null;
      const back = light(style.backgroundColor);
      if (back.alpha > .99) return back.value;
    }
    return 1;
  };
  const plain = (text) => text.replace(/[^\p{L}\p{N}]+/gu, " ").trim().toLowerCase();
  const wordsIn = (element) => [...element.childNodes].map((one) => {
    if (one.nodeType === 3) return one.data;
    const heard = one.nodeType === 1 && one.checkVisibility() && one.ariaHidden !== "true";
    return heard ? ` ${wordsIn(one)} ` : "";
  }).join("");
  for (const element of document.querySelectorAll("body *")) {
    const name = element.outerHTML.slice(0, 120), style = getComputedStyle(element);
    if (!element.checkVisibility() || element.closest(".unseen, [disabled], svg")) continue;
    const text = [...element.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data.trim()).join("");
    const back = text && !element.closest("[aria-hidden=true]") ? behind(element) : null;
    if (back !== null) {
      const [low, high] = [light(style.color).value, back].sort((a, b) => a - b);
      const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
      const ratio = (high + .05) / (low + .05);
      if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${name}`);
    }
    if (element.matches("button, a, input, select, [role=option]")) {
      const shown = plain(wordsIn(element)), label = plain(element.ariaLabel ?? "");
      const named = shown || label || element.labels?.length || element.closest("[aria-hidden=true]");
      if (!named) found.push(`no name: ${name}`);
      if (label && !label.includes(shown)) found.push(`"${label}" for "${shown}": ${name}`);
    }
    if (text && !element.closest("header, main, nav, dialog, .skip, [role=region], [role=alert]")) found.push(`in no landmark: ${name}`);
    if (element.matches("article[role], main main")) found.push(`role: ${name}`);
  }
  return found;
}
