"""Images as unit vectors: nearest ones, the map, typical ones, against slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from protofission.web.label.image_space import MAP_SIDE, ImageSpace
from protofission.web.label.row_sets import ImageTable, image_lines, rows_of_set


def units_of(number: int = 200, width: int = 6, kinds: int = 4, seed: int = 0) -> ImageSpace:
    random = np.random.default_rng(seed)
    rows = 3 * random.standard_normal((kinds, width))[np.arange(number) % kinds]
    rows = rows + 0.5 * random.standard_normal((number, width))
    return ImageSpace((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))


def test_the_space_does_not_depend_on_how_rows_are_read() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((5000, 7)).astype(np.float32)
    labels = np.arange(50) % 3
    asked: list[int] = []

    def rows(numbers: np.ndarray) -> np.ndarray:
        asked.append(len(numbers))
        return features[numbers]

    space = ImageSpace.of(rows, 5000, labels)
    assert space.units.shape[0] == 5000
    assert max(asked) <= 4096  # features of all are never in memory
    assert np.allclose(np.linalg.norm(space.units, axis=1), 1, atol=1e-5)


def test_similar_is_the_order_of_cosines() -> None:
    space = units_of()
    for row in (0, 99):
        cosines = [float(space.units[row] @ other) for other in space.units]
        order = sorted((k for k in range(200) if k != row), key=lambda k: -cosines[k])
        rows, found = space.similar(row, 200)
        assert rows.tolist() == order
        assert found == pytest.approx([cosines[k] for k in order], abs=1e-6)
    assert [len(space.similar(0, n)[0]) for n in (1, 5, 1000)] == [1, 5, 199]


def test_one_image_has_no_neighbor() -> None:
    rows, cosines = ImageSpace(np.ones((1, 1), np.float32)).similar(0, 5)
    assert len(rows) == len(cosines) == 0


def test_typicality_is_the_cosine_to_the_mean_direction() -> None:
    space = units_of()
    groups = np.arange(200) % 5 - 1
    found = space.typicality(groups)
    for number in range(4):
        rows = np.flatnonzero(groups == number)
        mean = space.units[rows].astype(float).sum(0)
        wanted = [float(space.units[k] @ mean / np.linalg.norm(mean)) for k in rows]
        assert found[rows] == pytest.approx(wanted, abs=1e-6)
    assert not found[groups < 0].any()


def test_stability_is_the_share_of_neighbors_in_the_same_group() -> None:
    space = units_of(number=60)
    groups = np.where(np.arange(60) < 50, np.arange(60) % 3, -1)
    cosines = space.units @ space.units.T
    shares: dict[int, list[float]] = {0: [], 1: [], 2: []}
    inside = np.flatnonzero(groups >= 0)
    for row in inside:
        near = sorted((k for k in inside if k != row), key=lambda k: -cosines[row, k])[:5]
        shares[int(groups[row])].append(float(np.mean(groups[near] == groups[row])))
    wanted = {number: float(np.mean(own)) for number, own in shares.items()}
    assert space.stability(groups) == pytest.approx(wanted)
    assert space.stability(np.full(60, -1)) == {}


def test_places_are_on_the_map_and_far_ones_on_its_edge() -> None:
    x, y = units_of(1000).places()
    for places in (x, y):
        assert (places.min(), places.max()) == (0, MAP_SIDE)
        assert len(np.unique(places)) > 500
    same = ImageSpace(np.tile(np.float32([0.6, 0.8]), (50, 1)))
    assert {tuple(p.tolist()) for p in same.places()} == {(MAP_SIDE // 2,) * 50}


def test_a_split_has_every_row_once_and_finds_kinds() -> None:
    space = units_of(number=80, kinds=2)
    rows = np.arange(10, 70)
    parts = space.split(rows, 2)
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert {frozenset((part % 2).tolist()) for part in parts} == {frozenset({0}), frozenset({1})}
    alike = ImageSpace(np.tile(np.float32([0.6, 0.8]), (50, 1)))
    assert len(alike.split(rows[:20], 3)) == 1


def table_of(number: int) -> ImageTable:
    random = np.random.default_rng(0)
    return ImageTable(
        last_action=0,
        num_labeled=100,
        classes=random.integers(0, 10, number),
        model_classes=random.integers(0, 10, number),
        probability=random.random(number),
        id_scores=random.random(number),
        decisions=random.integers(0, 2, number),
        labels=np.where(np.arange(number) < 100, np.arange(number) % 10, -2),
        skipped=np.zeros(number, bool),
        subclasses=random.integers(0, 5, number),
        members=random.integers(-1, 5, number),
        clusters=random.integers(-1, 5, number),
        open_clusters=random.integers(-1, 5, number),
        typicality=random.random(number),
        random=np.arange(5),
        threshold=0.3,
        living=frozenset(range(10)),
    )


def test_a_window_of_ten_thousand_images_takes_milliseconds() -> None:
    import time

    table, names = table_of(10_000), [f"{k}.png" for k in range(10_000)]
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        rows = rows_of_set(table, "class:3:accepted")
        image_lines(table, names, rows[:100])
        best = min(best, time.perf_counter() - start)
    assert best < 0.05  # 1 ms on an idle core


def test_scores_that_are_no_numbers_are_null() -> None:
    table = table_of(200)
    table.id_scores[150] = np.nan
    table.probability[150] = np.inf
    (line,) = image_lines(table, ["x"] * 200, np.array([150]))
    assert line[3:5] == [None, None]
