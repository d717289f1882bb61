"""Frames of the workbench while its grid of all images scrolls, in a real browser.

    python benchmarks/grid_frames.py MODEL [--browser /usr/bin/chromium] [--seconds 5]

The grid is scrolled at three speeds, first while thumbnails are made and then again. A line has the
median, the 95th percentile and the longest of the times between frames in milliseconds (a screen
shows one each 17 ms), and the number of tiles that the page holds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

from playwright.sync_api import sync_playwright

SPEEDS = (0, 800, 3_000, 30_000)
"""Pixels a second; 0 is the browser at rest."""
SCROLL = """async ({speed, seconds}) => {
  const gaps = []; let last = performance.now(); const end = last + 1000 * seconds;
  await new Promise((done) => {
    const step = (now) => {
      const gap = now - last; gaps.push(gap); last = now;
      window.scrollBy(0, speed * Math.min(gap, 50) / 1000);
      now < end ? requestAnimationFrame(step) : done();
    };
    requestAnimationFrame(step);
  });
  gaps.shift(); gaps.sort((a, b) => a - b);
  const place = (share) => Math.min(gaps.length - 1, Math.floor(share * gaps.length));
  const at = (share) => Math.round(gaps[place(share)]);
  return [at(0.5), at(0.95), at(1), document.querySelectorAll(".tile").length];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    command = [sys.executable, "-m", "protofission", "label", options.model, "--no-browser"]
    server = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in server.stdout)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=options.browser, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(found.group().rstrip("."))
            page.wait_for_selector("main h1")
            page.goto(page.url.split("#")[0] + "#/images/all")
            page.wait_for_selector(".tile img.there")
            print(f"load {os.getloadavg()[0]:.1f}; median, 95 %, worst in ms; tiles")
            for turn in ("first", "again"):
                page.evaluate("scrollTo(0, 0)")
                for speed in SPEEDS:
                    asked = {"speed": speed, "seconds": options.seconds}
                    print(f"{turn}, {speed:>6,} px/s: {page.evaluate(SCROLL, asked)}", flush=True)
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
