"""Drawings as inline SVG or as files: small, and the same bytes every time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib import style
from matplotlib.figure import Figure

from protofission.system.whole_files import write_whole

INK, FAINT = "#222222", "#d9d9d9"
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colors that color-blind people tell apart."""
DPI = {"png": 200, "svg": 72}

LOOK: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def svg(
    name: str, label: str, draw: Callable[[Figure], None], inches: tuple[float, float]
) -> Markup:
    """The SVG element of a drawing.

    Args:
        name: salt of its ids, unlike that of the page's other figures.
        label: a description for screen readers.
        draw: fills an empty figure.
    """
    return _svg_element(_file_content(name, draw, inches, "svg", "none").decode(), label)


def write_drawing(
    path: Path, draw: Callable[[Figure], None], inches: tuple[float, float]
) -> list[Path]:
    """Write a drawing on white paper as PNG and as SVG, beside each other.

    Args:
        path: of both, without the ending.
        draw: fills an empty figure.
    """
    paths = []
    for ending in ("png", "svg"):
        paths.append(path.with_name(f"{path.name}.{ending}"))
        write_whole(paths[-1], _file_content(path.name, draw, inches, ending, "white"))
    return paths


def _file_content(
    name: str, draw: Callable[[Figure], None], inches: tuple[float, float], ending: str, paper: str
) -> bytes:
    """The bytes of a drawing's file, without a date or a version."""
    content = BytesIO()
    changing = {"svg": {"Date": None}, "png": {"Software": None}}[ending]
    with style.context(["default", LOOK, {"svg.hashsalt": name}]), warnings.catch_warnings():
        # Class names of any script: the browser has the glyphs that matplotlib misses.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=inches)
        draw(figure)
        figure.savefig(content, format=ending, dpi=DPI[ending], facecolor=paper, metadata=changing)
    return content.getvalue()


def _svg_element(document: str, label: str) -> Markup:
    """An SVG file as an element of a page: no prolog, namespaces, metadata or repeated ids."""
    body = document[document.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"\n\s*", "\n", body).replace("xlink:href", "href")
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    start = Markup('<svg {} role="img" aria-label="{}">').format(Markup(box.group()), label)
    return start + Markup(body[body.index(">") + 1 :].strip())


def shorten(name: str, limit: int = 14) -> str:
    """Cut a name to fit an axis."""
    return name if len(name) <= limit else name[: limit - 1] + "…"
