"""The report: rows over seeds, heads in their order, sheets to the pixel, and a page of its own."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter
from dataclasses import asdict, replace
from html.parser import HTMLParser
from io import BytesIO, StringIO
from math import isnan, nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from protofission.core.errors import InputError
from protofission.core.metrics import Accuracy, PrototypeHealth
from protofission.core.options import override
from protofission.data.augment.affine_views import DIGITS
from protofission.data.datasets import Data
from protofission.data.image_sets import TestData, TrainingData
from protofission.data.splits.split import Split
from protofission.experiments.report import run_figures as figures
from protofission.experiments.report.quantities import GLOSSARY, RUN_COLUMNS
from protofission.experiments.report.results import Result, by_method
from protofission.experiments.report.run_page import write_page
from protofission.experiments.report.run_tables import disagreements, method_rows, terminal_table
from protofission.pages.contact_sheets import (
    FRAME,
    LARGEST_THUMBNAIL,
    PAPER,
    images_per_strip,
    picture_row,
    png_uri,
    sheets,
    shown_heads,
)
from protofission.pages.drawing import shorten
from protofission.pages.head_names import head_order, meaning
from protofission.system.json_files import to_json
from protofission.training.experiment import as_json
from protofission.training.predictions import NO_SLOT, Predictions
from protofission.training.presets import preset
from protofission.training.run import Epoch, RunFolder, environment
from protofission.training.run_metrics import RunMetrics, compute_metrics

NAMES = ('<b>&"x"', "$y^2$", "猫", "d")
LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
# Novel classes sit on each other's heads; the last image, a stranger, sits on a seen head.
PREDICTIONS = Predictions(
    labels=LABELS,
    heads=np.array([0, 0, 0, 1, 1, 1, 3, 3, 3, 2, 2, 0]),
    slots=np.array([0, 2, 0, 1, 1, 1, 0, 0, 0, 2, 2, 0]),
    similarities=np.array([5, 6, 9, 4, 4, 4, 1, 2, 3, 8, 9, 7], np.float32) / 10,
    ood_scores=np.array([1, 1, 2, 1, 3, 1, 8, 9, 7, 9, 8, 1], np.float32) / 10,
    prototypes=np.eye(4, dtype=np.float32).repeat(3, 0).reshape(4, 3, 4),
    mixing=np.full((4, 3), 0.5, np.float32),
    num_seen=2,
    num_classes=4,
)
CONFUSION = np.array([[3, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0, 3], [1, 0, 2, 0]])
GREYS = (20 * np.arange(12)).astype(np.uint8)
PIXELS = np.broadcast_to(GREYS[:, None, None, None], (12, 1, 4, 4)).copy()


def data_of(names: tuple[str, ...] = NAMES, num_seen: int = 2, labels: Any = LABELS) -> Data:
    """Data with the test images of PREDICTIONS."""
    training = TrainingData(
        torch.zeros(num_seen, 1, 4, 4), torch.arange(num_seen), torch.zeros(12, 1, 4, 4),
        num_seen, len(names),
    )  # fmt: skip
    ids = tuple(range(len(names)))
    places = np.arange(12)
    split = Split("orca", 0, ids[:num_seen], ids[num_seen:], places[:2], places, places)
    test = TestData(torch.from_numpy(PIXELS), labels)
    return Data(training, test, DIGITS, split, names)


def run_metrics(seen: float = 0.9, orca: Any = (0.8, 0.8), strict: Any = (0.8, 0.8)) -> RunMetrics:
    """Metrics with given accuracies; orca and strict are (novel, all)."""
    health = PrototypeHealth(0.1, 2.25, 0, 0.3, 0.5)
    return RunMetrics(
        Accuracy(seen, *orca), Accuracy(seen, *strict), 0.93125, 0.9, 0.1, 0.5, 0.5, health
    )


def result(
    parent: Path,
    method: str = "orca+pf",
    seed: int = 0,
    predictions: Predictions = PREDICTIONS,
    numbers: RunMetrics | None = None,
    assignment: str = "recipe.momentum=0.9",
) -> Result:
    """A finished run, written by hand."""
    folder = RunFolder(parent / f"{method}-seed{seed}")
    numbers = numbers or compute_metrics(predictions)
    history = [Epoch(e, 2.0 - e + seed, {"max": 1.0}, 0.5, 0.1, numbers, None) for e in range(3)]
    arrays = BytesIO()
    np.savez_compressed(arrays, **vars(predictions))
    experiment = override(replace(preset("digits", "orca+pf"), name=method), assignment)
    folder.write("experiment.json", as_json(experiment))
    folder.write("environment.json", json.dumps(environment()))
    folder.write("split.json", json.dumps(data_of().split.manifest()))
    folder.write("history.json", to_json([asdict(epoch) for epoch in history]))
    folder.write("metrics.json", to_json(asdict(numbers)))
    folder.write("predictions.npz", arrays.getvalue())
    folder.write("finished", "")
    return Result(method, seed, folder)


def seeds(parent: Path, *numbers: RunMetrics, method: str = "orca") -> list[Result]:
    return [result(parent, method, seed, numbers=one) for seed, one in enumerate(numbers)]


# Rows


def test_rows_hold_mean_sample_deviation_and_n(tmp_path: Path) -> None:
    runs = seeds(tmp_path, run_metrics(0.8), run_metrics(0.9), run_metrics(1.0))
    row = method_rows([*runs, result(tmp_path, "zz"), result(tmp_path, "aa")])[0]
    assert (row.name, row.n) == ("orca", 3)
    assert row.cells["seen"].mean == pytest.approx(0.9)
    assert row.cells["seen"].sd == pytest.approx(0.1)  # sqrt((0.01 + 0 + 0.01) / 2)
    assert row.texts() == [
        "90.0 ± 10.0", *["80.0 ± 0.0"] * 4, "0.931 ± 0.000", "2.25 ± 0.00",
    ]  # fmt: skip


def test_rows_come_in_the_order_of_the_methods(tmp_path: Path) -> None:
    runs = [result(tmp_path, name, seed) for seed in (0, 1) for name in ("zz", "aa")]
    assert [(row.name, row.n) for row in method_rows(runs)] == [("zz", 2), ("aa", 2)]


def test_columns_read_the_right_numbers(tmp_path: Path) -> None:
    (row,) = method_rows(seeds(tmp_path, run_metrics(0.11, orca=(0.22, 0.33), strict=(0.44, 0.55))))
    assert row.texts() == ["11.0", "22.0", "44.0", "33.0", "55.0", "0.931", "2.25"]
    assert list(row.cells) == list(RUN_COLUMNS)


def test_one_seed_shows_no_spread(tmp_path: Path) -> None:
    (row,) = method_rows(seeds(tmp_path, run_metrics()))
    assert isnan(row.cells["seen"].sd)
    assert "±" not in printed([row])
    assert "One seed" in printed([row])


def test_what_cannot_be_judged_is_a_dash(tmp_path: Path) -> None:
    blind = run_metrics(orca=(nan, 0.5), strict=(nan, 0.5))
    (row,) = method_rows(seeds(tmp_path, run_metrics(), blind))
    assert row.texts()[1:4] == ["–", "–", "65.0 ± 21.2"]  # noqa: RUF001
    assert disagreements([row]) == []


def printed(table: Any) -> str:
    text = StringIO()
    Console(file=text, width=80).print(terminal_table(table))
    return text.getvalue()


def test_the_terminal_table_fits_80_columns(tmp_path: Path) -> None:
    wide = [run_metrics(0.0, (0.0, 0.0), (0.0, 0.0)), run_metrics(1.0, (1.0, 1.0), (1.0, 1.0))]
    text = printed(method_rows(seeds(tmp_path, *wide, method="fixmatch-sigmoid+pf")))
    assert max(map(len, text.splitlines())) <= 80
    assert "fixmatch-sigmoid+pf" in text
    assert text.count("± 70.7") == 5
    assert "…" not in text


@pytest.mark.parametrize(("gap", "named"), [(0.02, False), (0.0201, True)])
def test_protocols_over_two_points_apart_are_named(tmp_path: Path, gap: float, named: bool) -> None:
    table = method_rows(seeds(tmp_path, run_metrics(orca=(0.83 + gap, 0.8), strict=(0.83, 0.8))))
    said = "differ by 2.0 points in `novel`: a novel class sits on a seen head."
    assert disagreements(table) == [f"orca: the two protocols {said}"] * named


def test_one_seed_of_many_is_enough_to_be_named(tmp_path: Path) -> None:
    apart = run_metrics(orca=(0.9, 0.85), strict=(0.7, 0.8))
    (sentence,) = disagreements(method_rows(seeds(tmp_path, *[run_metrics()] * 19, apart)))
    assert "in 1 of 20 seeds, by up to 20.0 points in `novel` and 5.0 points in `all`" in sentence


def test_apart_in_all_alone_has_its_own_cause(tmp_path: Path) -> None:
    (sentence,) = disagreements(method_rows(seeds(tmp_path, run_metrics(orca=(0.8, 0.9)))))
    assert sentence.endswith("10.0 points in `all`: a class sits on another's head.")


def test_the_glossary_explains_every_word_of_the_table() -> None:
    words = {word for column in RUN_COLUMNS.values() for word in (column.title, column.protocol)}
    assert words - {""} == set(GLOSSARY)


# Heads and figures


def test_novel_heads_stand_in_the_order_of_their_matching() -> None:
    assert PREDICTIONS.confusion.tolist() == CONFUSION.tolist()
    assert head_order(CONFUSION, 2) == [0, 1, 3, 2]
    assert np.diagonal(CONFUSION[:, head_order(CONFUSION, 2)]).tolist() == [3, 3, 3, 2]


def test_seen_heads_keep_their_place_whatever_they_hold() -> None:
    assert head_order(CONFUSION[::-1], 2)[:2] == [0, 1]
    assert head_order(np.diag([1, 2]), 2) == [0, 1]


def test_a_head_stands_for_its_class_or_for_most_of_its_images() -> None:
    counts = np.array([[0, 0, 5, 0], [0, 1, 0, 0], [9, 0, 2, 0], [0, 0, 0, 0]])
    told = [meaning(head, counts, 2, "abcd") for head in range(4)]
    assert [each.title for each in told] == [
        "a",
        "b",
        "novel cluster (mostly a, a known class)",
        "novel cluster (no images)",
    ]
    assert [each.stands_for for each in told] == [0, 1, 0, None]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def test_the_confusion_matrix_shows_names_and_counts() -> None:
    drawn = figures.confusion("0", "orca", PREDICTIONS, NAMES)
    found = texts(drawn)
    assert found[:8] == [*NAMES[:2], "≈ 猫", "≈ d", "predicted head", *NAMES[:3]]
    assert found[8:] == ["d", "true class", "3", "3", "3", "1", "2", "orca"]
    assert "11 of 12 images on the diagonal" in drawn


def test_a_head_that_matches_no_class_says_so() -> None:
    lost = replace(PREDICTIONS, heads=np.array([0, 0, 0, 1, 1, 1, 3, 3, 3, 0, 0, 0]))
    assert "≈ –" in texts(figures.confusion("0", "orca", lost, NAMES))  # noqa: RUF001


def test_many_classes_are_thinned_out_not_piled_up() -> None:
    many = replace(PREDICTIONS, num_classes=100, num_seen=50, heads=PREDICTIONS.labels)
    found = texts(figures.confusion("0", "orca", many, [f"class {c}" for c in range(100)]))
    assert found[:3] == ["class 0", "class 5", "class 10"]
    assert "3" not in found


def test_the_histogram_tells_the_auc() -> None:
    drawn = figures.histogram("0", "orca", PREDICTIONS)
    # Of 36 pairs, 30 are right; the last stranger ties with 4 known images and is below 2.
    assert f"orca · AUC {(30 + 2) / 36:.3f}" in texts(drawn)
    assert {"known classes (6)", "strangers (6)"} <= set(texts(drawn))


def test_curves_of_all_methods_have_room_and_lines_of_their_own(tmp_path: Path) -> None:
    one = result(tmp_path)
    drawn = {n: figures.curves({f"method {m}": [one] for m in range(n)}, "all") for n in (4, 38)}
    heights = {n: float(re.findall(r'viewBox="0 0 \S+ (\S+)"', d)[0]) for n, d in drawn.items()}
    assert heights[38] - heights[4] > 17 * 10  # a legend of two columns, nine points a line
    assert {f"method {m}" for m in range(38)} <= set(texts(drawn[38]))
    styles = re.findall(r'<path d="[^"]*" clip-path="[^"]*" style="([^"]*)"', drawn[38])
    assert len({style for style in styles if "stroke-width: 1.6" in style}) == 38


def test_curves_are_means_over_seeds_in_bands(tmp_path: Path) -> None:
    one, two = (
        figures.curves(by_method([result(tmp_path, seed=s) for s in range(n)]), "loss")
        for n in (1, 2)
    )
    assert "ends at 0." in one
    assert "ends at 0.5." in two  # losses 0 and 1
    assert "fill-opacity: 0.18" in two
    assert "fill-opacity: 0.18" not in one


def test_a_long_name_is_cut_for_an_axis() -> None:
    assert shorten("automobile") == "automobile"
    assert shorten("a very long class name", 10) == "a very lo…"


# Sheets


def decoded(uri: str) -> Any:
    content = b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(BytesIO(content)).convert("RGB"))


def tiles(row: Any, size: int = 4, line: int = 1) -> list[Any]:
    """The places of a row of pictures, with the frames around them."""
    pitch = size + 5 * line
    return [row[:, x : x + size + 4 * line] for x in range(0, row.shape[1], pitch)]


def test_a_strip_shows_its_images_the_most_similar_first() -> None:
    sheet = sheets(PREDICTIONS, PIXELS, NAMES, per_slot=4)[0]
    assert sheet.title == NAMES[0]
    assert [strip.label for strip in sheet.strips] == [
        "prototype 1 · 3 images · 1 of other classes",
        "prototype 3 · 1 image",
    ]
    assert sheet.unused == "prototype 2 · unused"
    shown = tiles(decoded(sheet.strips[0].uri))
    for tile, image in zip(shown, (2, 11, 0), strict=False):
        assert (tile[2:-2, 2:-2] == GREYS[image]).all()
    assert (shown[3] == PAPER).all()


def test_images_of_another_class_are_framed_with_a_thick_corner() -> None:
    sheet = sheets(PREDICTIONS, PIXELS, NAMES, per_slot=3)[0]
    right, wrong, last = tiles(decoded(sheet.strips[0].uri))
    for tile in (right, last):
        assert (np.delete(tile, slice(2, -2), 0) == PAPER).all()
    framed = (wrong == FRAME).all(-1)
    assert framed[0].all()
    assert framed[-1].all()
    assert framed[1].tolist() == [True, False, False, False, True, True, True, True]
    assert "1 marked" in sheet.strips[0].alt


def test_of_equals_the_first_in_file_come_first_and_the_rest_is_left_out() -> None:
    (strip,) = sheets(PREDICTIONS, PIXELS, NAMES, per_slot=2)[1].strips
    assert strip.label == "prototype 2 · 3 images"
    assert [int(t[3, 3, 0]) for t in tiles(decoded(strip.uri))] == GREYS[[3, 4]].tolist()


def test_sheets_come_in_the_order_of_the_confusion_matrix() -> None:
    titles = [sheet.title for sheet in sheets(PREDICTIONS, PIXELS, NAMES)]
    assert titles == [*NAMES[:2], "novel cluster (mostly 猫)", "novel cluster (mostly d)"]


def test_rejected_images_come_by_their_ood_score() -> None:
    slots = np.where(PREDICTIONS.heads >= 2, NO_SLOT, PREDICTIONS.slots)
    rejecting = replace(PREDICTIONS, slots=slots, prototypes=PREDICTIONS.prototypes[:2])
    sheet = sheets(rejecting, PIXELS, NAMES, per_slot=3)[2]
    assert [strip.label for strip in sheet.strips] == ["rejected, no prototype · 3 images"]
    shown = [int(t[3, 3, 0]) for t in tiles(decoded(sheet.strips[0].uri))]
    assert shown == GREYS[[7, 6, 8]].tolist()
    assert sheet.unused == ""


def test_color_images_of_any_shape_keep_their_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 4, (2, 3, 20, 33), np.uint8) * 60
    row = decoded(png_uri(picture_row(images, np.array([False, True]), 2)))
    assert row.shape == (24, 2 * (33 + 5) - 1, 3)
    assert (row[2:-2, 2:35] == np.moveaxis(images[0], 0, -1)).all()
    assert (row[2:-2, 40:73] == np.moveaxis(images[1], 0, -1)).all()


def test_many_colors_become_near_ones_and_large_images_small() -> None:
    ramp = np.linspace(0, 255, 60 * 80, dtype=np.uint8).reshape(60, 80)
    image = np.stack([ramp, ramp[::-1], ramp[:, ::-1]])
    row = picture_row(image[None], np.array([True]), 1)
    line = LARGEST_THUMBNAIL * 60 // 80 // 16
    assert row.shape == (LARGEST_THUMBNAIL * 60 // 80 + 4 * line, LARGEST_THUMBNAIL + 4 * line, 3)
    assert abs(decoded(png_uri(row)).astype(int) - row).max() < 24


def test_strips_are_shorter_where_a_page_would_grow_heavy() -> None:
    assert images_per_strip(100, 8, 8) == 12
    assert images_per_strip(100, 32, 32) == 7  # 750,000 / (100 * 1024) = 7.3
    assert (
        images_per_strip(100, 2 * LARGEST_THUMBNAIL, LARGEST_THUMBNAIL) == 9
    )  # shrunk to 40 by 20
    assert images_per_strip(1000, 32, 32) == 4


def test_of_many_heads_the_first_seen_and_novel_ones_are_shown() -> None:
    many = replace(PREDICTIONS, num_classes=60, num_seen=30, heads=PREDICTIONS.labels)
    assert shown_heads(many) == [*range(10), *head_order(many.confusion, 30)[30:40]]
    assert shown_heads(PREDICTIONS) == [0, 1, 3, 2]


# The page


class Page(HTMLParser):
    """A page as a browser reads it: ids, links, text; and that tags close in order."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, content: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        values = {name: value or "" for name, value in attrs}
        self.ids.update([values["id"]] if "id" in values else [])
        self.links += [values[key] for key in ("src", "href", "srcset", "action") if key in values]
        for value in values.values():
            self.links += re.findall(r"url\(([^)]*)\)", value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(tmp_path: Path, results: list[Result], data: Data | None = None) -> tuple[str, Page]:
    path = tmp_path / "report.html"
    write_page(path, results, data or data_of(), 'protofission demo --set "a=<b>&\'"')
    content = path.read_text()
    return content, Page(content)


def four(tmp_path: Path, number: int = 1) -> list[Result]:
    plain = replace(PREDICTIONS, prototypes=PREDICTIONS.prototypes[:, :1], slots=0 * LABELS,
                    mixing=PREDICTIONS.mixing[:, :1])  # fmt: skip
    predictions = {"orca": plain, "orca+pf": PREDICTIONS, "a<i>": plain, "a<i>+pf": PREDICTIONS}
    return [
        result(tmp_path / "runs", name, seed, made)
        for name, made in predictions.items()
        for seed in range(number)
    ]


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page, list[Result]]:
    """A page of four methods and two seeds."""
    folder = tmp_path_factory.mktemp("two")
    results = four(folder, 2)
    return *page_of(folder, results), results


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page, list[Result]]:
    """A page of two methods, one of them with sub-classes, and one seed."""
    folder = tmp_path_factory.mktemp("one")
    results = four(folder)[:2]
    return *page_of(folder, results), results


Made = tuple[str, Page, list[Result]]


def test_the_page_needs_nothing_but_itself(two_seeds: Made) -> None:
    content, page, _ = two_seeds
    assert not page.open
    assert page.tags["script"] == 0
    assert "http://" not in content
    assert "https://" not in content
    assert "@import" not in content
    inner = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    outer = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert outer == []
    assert inner <= set(page.ids)
    assert page.ids.most_common(1)[0][1] == 1


def test_names_are_escaped_everywhere(two_seeds: Made) -> None:
    content, page, _ = two_seeds
    assert NAMES[0] not in content
    assert "<i>" not in content
    assert page.tags["b"] == page.tags["i"] == 0
    assert f"Known {', '.join(NAMES[:2])} Strangers 猫, d" in page.text
    assert 'demo --set "a=<b>&\'"' in page.text
    drawings = re.findall(r"<svg.*?</svg>", content, re.DOTALL)
    assert len(drawings) == 4 + 4 + 4
    assert sum(NAMES[0] in texts(drawing) for drawing in drawings) == 4
    assert page.words.count("novel cluster (mostly 猫)") == 2


def test_the_page_shows_the_rows_of_the_terminal(two_seeds: Made) -> None:
    content, page, results = two_seeds
    cells = re.findall("<td>(.*?)</td>", content)
    assert cells == [text for row in method_rows(results) for text in [str(row.n), *row.texts()]]
    assert "Mean ± sample standard deviation over 2 seeds." in page.text
    assert "Pictures are of the first seed" in page.text
    assert data_of().split.sha256 in page.text
    assert f"torch {torch.__version__}" in page.text


def test_a_page_of_one_seed_says_so_and_shows_no_spread(one_seed: Made) -> None:
    content, page, results = one_seed
    assert "one seed (0)" in page.text
    assert "±" not in page.text
    assert "first seed" not in page.text
    assert re.findall("<td>(.*?)</td>", content)[0] == method_rows(results)[0].texts()[0]


def test_only_methods_with_several_prototypes_have_sub_classes(
    tmp_path: Path, one_seed: Made
) -> None:
    _, page, results = one_seed
    assert page.tags["h3"] == page.ids["subclasses"] == 1
    alone = page_of(tmp_path, results[:1])[1]
    assert alone.tags["h3"] == alone.ids["subclasses"] == 0


def test_protocols_apart_and_oracles_are_told(tmp_path: Path) -> None:
    apart = run_metrics(orca=(0.9, 0.8), strict=(0.7, 0.8))
    oracle = result(tmp_path, numbers=apart, assignment="judging.select=oracle")
    content, page = page_of(tmp_path, [oracle])
    assert "differ by 20.0 points in <code>novel</code>" in content
    assert "orca+pf: the epoch is the best one by the test labels, an oracle" in page.text


def test_a_page_without_strangers(tmp_path: Path) -> None:
    labels = LABELS % 2
    two = {"prototypes": PREDICTIONS.prototypes[:2], "mixing": PREDICTIONS.mixing[:2]}
    closed = replace(PREDICTIONS, labels=labels, heads=labels, num_classes=2, **two)
    data = data_of(NAMES[:2], 2, labels)
    content, page = page_of(tmp_path, [result(tmp_path, predictions=closed)], data)
    assert "Strangers none" in page.text
    assert "nothing to judge" in page.text
    assert re.findall("<td>(.*?)</td>", content)[1:3] == ["–", "–"]  # noqa: RUF001


def test_the_same_results_make_the_same_bytes(tmp_path: Path, one_seed: Made) -> None:
    content, _, results = one_seed
    again = [Result(each.method, each.seed, each.folder) for each in results]
    assert page_of(tmp_path, again)[0] == content
    assert str(results[0].folder.path.parent) not in content


def test_a_page_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page" / "report.html"
    results = four(tmp_path)[:1]
    write_page(path, results, data_of(), "")
    before = path.read_bytes()
    assert before.endswith(b"</html>")
    with pytest.raises(InputError, match="other test images than the page's data"):
        write_page(path, results, data_of(labels=LABELS[::-1]), "")
    with pytest.raises(InputError, match="no result to report"):
        write_page(path, [], data_of(), "")

    def full(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"report\.html cannot be written: No space left"):
        write_page(path, results, data_of(), "another page")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
