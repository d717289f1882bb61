"use strict";
for (const button of document.querySelectorAll("button[data-names]")) {
  const said = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const list = document.getElementById(button.dataset.names);
    let copied = true;
    try {
      await navigator.clipboard.writeText(list.textContent);
    } catch {
      list.closest("details").open = true;
      getSelection().selectAllChildren(list);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { button.textContent = said; }, 2000);
  });
}
