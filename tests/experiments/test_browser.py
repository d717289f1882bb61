"""The report of a suite in a real browser: on a screen, at phone width and on paper."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protofission.experiments.report.suite_report import write_report
from suite_runs import curve_runs, curve_suite, table_runs, table_suite

CHROMIUM = shutil.which("chromium")
PHONE = 360

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


def browse(page: Path, *options: str) -> str:
    """Open a page in a browser of its own; what it prints."""
    assert CHROMIUM is not None
    profile = page.parent / "profile"
    fixed = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--allow-file-access-from-files",
             f"--user-data-dir={profile}"]  # fmt: skip
    done = subprocess.run(
        [CHROMIUM, *fixed, *options, page.as_uri()],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of a table and one of curves."""
    folder = tmp_path_factory.mktemp("browser")
    for name, suite, runs in (
        ("table", table_suite(), table_runs),
        ("curves", curve_suite(), curve_runs),
    ):
        made = runs(folder / name / "runs", suite, 3)
        write_report(folder / name, suite, made, "protofission suite", ["Budget 0.5: half."])
    return folder


def test_the_page_is_drawn(reports: Path) -> None:
    shot = reports / "shot.png"
    browse(reports / "table" / "report.html", "--window-size=1200,1600", f"--screenshot={shot}")
    with Image.open(shot) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert pixels.shape == (1600, 1200, 3)
    dark = pixels.sum(-1) < 200
    assert 0.003 < dark.mean() < 0.3
    assert all(part.any() for part in np.array_split(dark, 8))  # text from top to bottom
    orange = (abs(pixels - (0xD5, 0x5E, 0x00)).sum(-1) < 12).sum()
    assert orange > 100  # the bar beside what no reader may miss


def test_a_phone_scrolls_tables_and_not_the_page(reports: Path) -> None:
    """Frames of a phone's width write down the width of what is in them."""
    measure = (
        "<script>addEventListener('load', () => { const at = document.documentElement;"
        "const box = document.querySelector('.scroll'); parent.document.title += "
        "` page ${at.clientWidth} ${at.scrollWidth} box ${box.clientWidth} ${box.scrollWidth}`;"
        "});</script>"
    )
    frames = ""
    for name in ("table", "curves"):
        page = (reports / name / "report.html").read_text()
        page = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        (reports / f"{name}.html").write_text(page.replace("</body>", measure + "</body>"))
        frames += (
            f'<iframe src="{name}.html" width="{PHONE}" height="640" style="border:0"></iframe>'
        )
    (reports / "phone.html").write_text(f"<!doctype html><title></title>{frames}")
    document = browse(reports / "phone.html", "--virtual-time-budget=5000", "--dump-dom")
    found = re.findall(r"page (\d+) (\d+) box (\d+) (\d+)", document)
    assert len(found) == 2
    for width, inside, box, table in (tuple(map(int, numbers)) for numbers in found):
        assert width == inside == PHONE
        assert box < PHONE
        assert table > box  # there was something to scroll


def test_the_page_is_printed(reports: Path) -> None:
    pdf = reports / "paper.pdf"
    browse(reports / "table" / "report.html", "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 6
