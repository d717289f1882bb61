"""The workbench in a real browser when its server dies, and with ten thousand images."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served_workbenches import CHROMIUM, Served, Window, chromium
from small_workbenches import small_model

pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

SCROLLING = """async () => {
const frames = [];
let most = 0;
let last = performance.now();
const high = document.documentElement.scrollHeight;
for (let step = 0; step <= 60; step += 1) {
  window.scrollTo(0, (high * step) / 60);
  await new Promise(requestAnimationFrame);
  const now = performance.now();
  frames.push(now - last);
  last = now;
  most = Math.max(most, document.querySelectorAll('.tile').length);
}
frames.sort((a, b) => a - b);
return {most, high, median: frames[30], longest: frames.at(-1)};
}"""
"""Scrolls through a page in 60 steps: most tiles at a time, and milliseconds between frames."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.mark.slow
def test_a_killed_server_is_told_and_undo_works_after_the_next_start(
    browser: Any, tmp_path: Path
) -> None:
    model = small_model(tmp_path, pool=120)
    context = browser.new_context()
    with Served(model) as server:
        window = Window(context.new_page(), server.address)
        window.enter(server.entry)
        window.open("images/unlabeled")
        before = window.labels()
        window.press("Space", "ArrowRight", "Space", "3")
        window.says("Labeled 2 images as cedar")
        server.stop(signal.SIGKILL)
        window.press("1")
        window.page.locator("#banner", has_text="does not answer").wait_for()
        window.counts(".tile .line.labeled", 2)
    with Served(model, server.port) as again:
        window.enter(again.entry)
        window.open("overview")
        window.wait_for_labels(cedar=before["cedar"] + 2)
        window.press("z")
        window.says("Undone: ")
        window.wait_for_labels(**before)
        assert window.errors == []
        context.close()


@pytest.mark.slow
def test_ten_thousand_images_scroll_with_few_tiles(
    browser: Any, tmp_path: Path, record_property: Any
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    with Served(small_model(tmp_path, pool=10_000)) as server:
        window = Window(context.new_page(), server.address)
        window.enter(server.entry)
        window.open("images/all")
        window.page.wait_for_selector(".tile")
        found = window.page.evaluate(SCROLLING)
        print(json.dumps(found))
        record_property("frames", found)
        assert found["high"] > 100 * 800
        assert found["most"] < 150
        window.press("a")
        window.bar("10,060 images selected")
        window.press("0")
        window.wait_for_labels(unlabeled=0, none=10_060)
        window.press("z")
        window.wait_for_labels(none=0)
        assert window.errors == []
        context.close()
