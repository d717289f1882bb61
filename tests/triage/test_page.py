"""The page of a triage: what is shown, in which order, and that any name is safe on it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from PIL import Image

from protofission.triage import page as page_module
from protofission.triage.calibrated_model import ACCEPT, REJECT
from protofission.triage.page import confused_pairs, triage_page, write_triage_page
from protofission.triage.page_groups import IN_CLUSTER, IN_ROW, rejected_groups
from protofission.triage.prediction_table import escape_text
from protofission.triage.triage_data import PoolVerdicts, TriageData
from small_triages import MARKUP, ODD_NAMES, small_triage


class Reader(HTMLParser):
    """Elements with their attributes, and the text of lists of names and headings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("pre", "h3", "h2", "p", "td", "script"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def section(page: str, name: str) -> str:
    return page.split(f'<section id="{name}">')[1].split("</section>")[0]


def shown_numbers(page: str) -> list[int]:
    """The numbers of the images of a page, by the color of their thumbnails."""
    found = []
    for attributes in Reader(page).all("img"):
        content = base64.b64decode((attributes["src"] or "").split(",")[1])
        found.append(int(np.asarray(Image.open(BytesIO(content)).convert("RGB"))[0, 0, 0]))
    return found


def test_every_link_leads_to_its_file_and_every_name_can_be_copied(tmp_path: Path) -> None:
    data = small_triage(tmp_path)
    (tmp_path / "out" / "model").mkdir(parents=True)
    write_triage_page(tmp_path / "page.html", data, "fit", tmp_path / "out" / "model")
    page = (tmp_path / "page.html").read_text()
    found = Reader(page)
    links = [a for a in found.all("a") if a.get("target") == "_blank"]
    pictures = shown_numbers(page)
    assert len(links) == len(pictures) > 80
    base = os.fsencode(tmp_path / "out" / "model")
    for link, number in zip(links, pictures, strict=True):
        assert re.fullmatch(r"[\w./%~-]+", link["href"] or "", re.ASCII)
        file = Path(os.fsdecode(os.path.join(base, unquote_to_bytes(link["href"] or ""))))
        assert file.resolve() == data.file(number).resolve()
        assert np.asarray(Image.open(file))[0, 0, 0] == number
        assert (link["title"] or "").split("\n")[0] == escape_text(data.paths[number])
    names = {line for text in found.texts["pre"] for line in text.split("\n")}
    assert {escape_text(path) for path in (*ODD_NAMES, *data.paths[6:])} <= names


def test_nothing_but_the_page_s_own_script_can_run(tmp_path: Path) -> None:
    page = triage_page(small_triage(tmp_path / "none"), f"fit {MARKUP}", tmp_path)
    found = Reader(page)
    (script,) = found.texts["script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (m["content"] or "" for m in found.all("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" in policy.split("style-src")[1].split(";")[0]
    assert policy.count("unsafe") == 1
    assert not [tag for tag, _ in found.elements if tag in ("b", "iframe", "object", "form")]
    assert not [a for _, attributes in found.elements for a in attributes if a.startswith("on")]
    sources = [a.get("src") or "" for _, a in found.elements if "src" in a]
    assert sources
    assert all(source.startswith("data:image/") for source in sources)
    assert "http://" not in page
    assert "https://" not in page


def test_sections_are_in_the_order_of_a_triage_and_rows_are_sorted(tmp_path: Path) -> None:
    data = small_triage(tmp_path / "none", pool=120)
    page = triage_page(data, "fit", tmp_path)
    assert re.findall(r'<section id="(\w+)"', page) == [
        "rejected", "threshold", "classes", "labels", "confusions", "duplicates", "data",
    ]  # fmt: skip
    pool, first = data.pool, data.num_labeled
    groups = []
    for cluster in (0, 1, 2):
        members = [i for i in range(120) if pool.clusters[i] == cluster]
        groups.append(sorted(members, key=lambda i: -pool.typicality[i])[:IN_CLUSTER])
    alone = [i for i in range(120) if pool.decisions[i] == REJECT and pool.clusters[i] < 0]
    groups.append(sorted(alone, key=lambda i: pool.id_scores[i])[: 2 * IN_CLUSTER])
    wanted = [first + i for group in groups for i in group]
    assert shown_numbers(section(page, "rejected")) == wanted
    accepted = sorted(
        (i for i in range(120) if pool.decisions[i] == ACCEPT), key=lambda i: pool.id_scores[i]
    )
    refused = sorted(
        (i for i in range(120) if pool.decisions[i] == REJECT), key=lambda i: -pool.id_scores[i]
    )
    assert shown_numbers(section(page, "threshold")) == [
        first + i for i in accepted[:IN_CLUSTER] + refused[:IN_CLUSTER]
    ]
    own = [first + i for i in reversed(accepted) if pool.classes[i] == 0]
    classes = shown_numbers(section(page, "classes"))
    assert classes[: 2 * IN_ROW] == own[:IN_ROW] + own[::-1][:IN_ROW]
    assert f"accepted, most certain first · 10 of {len(own)}" in page
    assert shown_numbers(section(page, "labels")) == [3]
    assert "labeled b, looks like a &lt;/script&gt;" in section(page, "labels")
    assert shown_numbers(section(page, "duplicates")) == [0, 3, 8, 1, 7]


def test_the_largest_cluster_is_first_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    data = small_triage(tmp_path / "none")
    clusters = np.where(data.pool.decisions == REJECT, 2, -1)
    clusters[2] = 0
    data = replace(data, pool=replace(data.pool, clusters=clusters))
    groups, more = rejected_groups(data, 9)
    assert ([group.title for group in groups], more) == (["novel 3", "novel 1"], 0)
    groups, more = rejected_groups(data, 1)
    assert ([group.title for group in groups], more) == (["novel 3"], 1)


@pytest.mark.parametrize("decision", [ACCEPT, REJECT])
def test_a_pool_of_one_decision_or_of_one_image_has_a_page(tmp_path: Path, decision: int) -> None:
    for pool in (2, 12):
        data = small_triage(tmp_path / "none", pool=pool)
        decisions = np.full(pool, decision)
        data = replace(
            data,
            pool=replace(data.pool, decisions=decisions, clusters=np.full(pool, -1)),
            threshold=-np.inf if decision == ACCEPT else 0.05,
            cluster_names=(),
        )
        page = triage_page(data, "fit", tmp_path)
        assert ("No image of the pool was rejected." in page) == (decision == ACCEPT)
        assert ("No image of the pool was accepted." in page) == (decision == REJECT)
        assert ("There is no threshold." in page) == (decision == ACCEPT)


class Noise:
    """Pixels that no encoding makes small, made when they are read."""

    def __init__(self, count: int) -> None:
        self.shape = (count, 3, 128, 128)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        count = len(np.arange(len(self))[rows])
        return np.random.default_rng(count).integers(0, 256, (count, *self.shape[1:]), np.uint8)


def many(folder: Path, classes: int, clusters: int, pool: int, name: str) -> TriageData:
    """A triage of many classes and clusters, of noise."""
    rng = np.random.default_rng(0)
    decisions = rng.integers(0, 2, pool)
    return replace(
        small_triage(folder),
        pixels=Noise(6 + pool),
        paths=[f"{name}{i}.jpg" for i in range(6 + pool)],
        folder_of=np.zeros(6 + pool, np.int64),
        duplicate_groups=rng.integers(-1, pool // 3, 6 + pool),
        class_names=[f"class {c}" for c in range(classes)],
        subclass_names=[[f"{c} / {v}" for v in range(c % 6)] for c in range(classes)],
        cluster_names=[f"novel {c}" for c in range(clusters)],
        pool=PoolVerdicts(
            classes=rng.integers(0, classes, pool),
            probability=rng.random(pool),
            subclasses=rng.integers(0, 6, pool),
            id_scores=rng.random(pool),
            decisions=decisions,
            clusters=np.where(decisions == REJECT, rng.integers(-1, clusters, pool), -1),
            typicality=rng.random(pool),
        ),
    )


def test_a_page_has_its_bound_whatever_is_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual budget is below the bound; where names alone would break it, there are fewer."""
    m = page_module
    thumbnails = m.REJECTED + m.CLASSES + m.BORDERLINE + m.DUPLICATES + m.SHOWN_DOUBTS
    assert thumbnails * (m.URI_CHARACTERS + 1_000) + m.NAME_CHARACTERS < m.PAGE_BYTES <= 20e6
    for name, value in {"REJECTED": 40, "CLASSES": 40, "BORDERLINE": 4, "DUPLICATES": 9}.items():
        monkeypatch.setattr(m, name, value)
    monkeypatch.setattr(m, "NAME_CHARACTERS", 50_000)
    data = many(tmp_path, 1000, 300, 5000, "some image ")
    page = triage_page(data, "fit", tmp_path)
    assert page.count("<img") <= 40 + 40 + 4 + 9 + 1
    assert "The first 30 of 1000 classes" in page
    assert "240 smaller clusters are in triage.csv alone" in page
    listed = sum(map(len, Reader(page).texts["pre"]))
    assert 20_000 < listed <= 50_000
    data = many(tmp_path, 1000, 300, 5000, "'" * 4000)
    whole = len(triage_page(data, "fit", tmp_path).encode())
    for bound in (whole - 1, whole // 3):
        monkeypatch.setattr(m, "PAGE_BYTES", bound)
        assert 0.1 * bound < len(triage_page(data, "fit", tmp_path).encode()) <= bound


def test_confused_pairs_are_off_the_diagonal_most_first() -> None:
    pairs = confused_pairs(np.array([[9, 1, 0], [0, 8, 4], [2, 0, 1]]), "abc")
    found = [(p.label, p.likeliest, p.count, p.total, p.share) for p in pairs]
    assert found == [
        ("b", "c", 4, 12, "33.3 %"),
        ("c", "a", 2, 3, "66.7 %"),
        ("a", "b", 1, 10, "10 %"),
    ]
