"""A workbench that a real server serves to a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--no-first-run")  # fmt: skip
MARKUP = "<img src=x onerror=document.title='caught'>.png"
"""A name of a file that is markup."""
WAIT = 15_000
"""Milliseconds that a busy machine is given."""


class Served:
    """A server of a model, in a process of its own."""

    def __init__(self, model: Path, port: int = 0) -> None:
        command = [sys.executable, "-m", "protofission", "label", str(model)]
        self.process = subprocess.Popen(
            [*command, "--no-browser", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "300"},
        )
        assert self.process.stdout is not None
        said = ""
        while "token=" not in said:
            line = self.process.stdout.readline()
            assert line, said
            said += line
        found = re.search(r"(http://[^\s/]+:(\d+))/\?token=\S+", said)
        assert found is not None, said
        self.entry, self.address, self.port = found[0], found[1], int(found[2])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def put_markup_into_a_name(model: Path) -> None:
    """Give the last image of the pool a name that is markup."""
    record = model / "images.json"
    text = record.read_text()
    name = re.findall(r'"(\d+-\d\.png)"', text)[-1]
    record.write_text(text.replace(f'"{name}"', f'"{MARKUP}"'))
    pool = model.parent / "pool"
    (pool / name).rename(pool / MARKUP)


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's browser, driven by playwright; a test without one is skipped."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


class Window:
    """A page of the workbench, with the few things that a person does."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        page.set_default_timeout(WAIT)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def enter(self, entry: str) -> None:
        """Open the printed address; the page that it gives goes on to the workbench."""
        self.page.goto(entry)
        self.page.wait_for_selector("main h1")

    def open(self, route: str) -> None:
        """Go to a screen and wait until it is there."""
        if not self.page.url.startswith(self.address):
            self.page.goto(f"{self.address}/#/{route}")
        else:
            self.page.evaluate("route => { location.hash = `#/${route}`; }", route)
        name = route.split("/")[0]
        self.page.wait_for_selector(f"main[data-screen={name}]:not([aria-busy]) h1")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type into the dialog that is open, and go on."""
        self.page.wait_for_selector("dialog[open] input[type=text]")
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("dialog", state="detached")

    def get(self, path: str) -> Any:
        return self.page.evaluate("path => fetch(path).then(answer => answer.json())", path)

    def labels(self) -> dict[str, int]:
        """Number of images by label, and of those without one."""
        overview = self.get("/api/overview")
        counts = overview["counts"]
        found = {one["name"]: one["labels"] for one in overview["classes"]}
        return {**found, "none": counts["none"], "unlabeled": counts["unlabeled"]}

    def wait_for_labels(self, **wanted: int) -> None:
        """Wait until all keys have reached the server, and it has so many labels of these names.

        Without the first, labels are often as wanted while a change and its undo are on their way,
        and a page that is closed then leaves the change for the next test.
        """
        saved = "() => document.querySelector('.saved')?.textContent === 'saved'"
        self.page.wait_for_function(saved)
        end = time.monotonic() + WAIT / 1000
        while not wanted.items() <= (found := self.labels()).items():
            assert time.monotonic() < end, (wanted, found)
            self.page.wait_for_timeout(30)

    def says(self, text: str) -> None:
        """Wait for a toast with this text."""
        self.page.locator(".toast p", has_text=text).last.wait_for()

    def counts(self, selector: str, number: int) -> None:
        """Wait until so many elements are there."""
        script = "([selector, number]) => document.querySelectorAll(selector).length === number"
        self.page.wait_for_function(script, arg=[selector, number])

    def tiles(self) -> int:
        return int(self.page.locator(".tile").count())

    def bar(self, text: str) -> None:
        """Wait until the bar at the bottom says how many images are selected."""
        self.page.locator("#bar strong", has_text=text).wait_for()
