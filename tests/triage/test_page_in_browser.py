"""The page of a triage in a real browser: its script runs, every link opens, a phone fits it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from protofission.triage.page import write_triage_page
from small_triages import small_triage

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

CHECK = """<script>
addEventListener("load", async () => {
  const links = [...document.querySelectorAll(".thumbs a")];
  const opened = await Promise.all(links.map((link) => new Promise((done) => {
    const image = new Image();
    image.onload = () => done(1);
    image.onerror = () => done(0);
    image.src = link.href;
  })));
  getSelection().selectAllChildren(document.querySelector("#labels .name"));
  const selected = getSelection().toString();
  let copied = "";
  Object.defineProperty(navigator, "clipboard", { value: {
    writeText: async (text) => { copied = text; } } });
  document.querySelector("#labels button").click();
  const page = document.documentElement;
  document.title = [links.length, opened.reduce((a, b) => a + b),
    page.scrollWidth - page.clientWidth, selected, copied].join(" ");
});
</script>"""


def dump(page: Path) -> str:
    """The document of a page after its scripts have run, at phone width."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--window-size=500,900", f"--user-data-dir={page.parent / 'profile'}",
               "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
    done = subprocess.run(
        [CHROMIUM, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_the_script_runs_under_its_policy_and_links_open(tmp_path: Path) -> None:
    page = tmp_path / "triage.html"
    write_triage_page(page, small_triage(tmp_path), "fit")
    buttons = re.findall(r"<button[^>]*>", dump(page))
    assert len(buttons) > 5
    assert not [button for button in buttons if "hidden" in button]
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    page.write_text(text.replace("</body>", CHECK + "</body>"))
    found = re.search(r"<title>(.*)</title>", dump(page))
    assert found is not None
    links, opened, too_wide, selected, copied = found[1].split(" ")
    assert int(links) == int(opened) > 80
    assert int(too_wide) == 0
    assert selected == copied == "b/3.png"  # with the folder, which is not drawn
