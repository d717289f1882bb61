"""Counts where the truth is clear, what must not change them, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest

from protofission.core import cluster_count as counting
from protofission.core.cluster_count import Count, count_novel, count_parts
from protofission.core.errors import InputError
from protofission.core.incremental_kmeans import Clustering

WIDTH = 12


def blobs(seed: int, number: int, rows: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit Gaussians with means `apart` from each other, and the blob of each row."""
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(WIDTH, WIDTH)))[0][:number]
    which = np.repeat(np.arange(number), rows)
    return axes[which] * apart / np.sqrt(2) + random.normal(size=(len(which), WIDTH)), which


def scene(seed: int, novel: int, apart: float = 9.0, known: int = 3, labels: int = 20):
    """Labeled features, their labels, and a pool in which `novel` further blobs are."""
    features, which = blobs(seed, known + novel, 80, apart)
    nth = np.tile(np.arange(80), known + novel)
    given = (which < known) & (nth < labels)
    return features[given], which[given], features[~given]


def turned(seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)))[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("novel", [0, 1, 3, 5])
def test_clear_novel_classes_are_counted(seed, novel):
    found = count_novel(*scene(seed, novel), most=7, seed=seed)
    assert found.number == novel
    assert found.stability >= 0.75


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_clear_parts_are_counted(seed, parts):
    features, _ = blobs(seed, parts, 80, 9.0)
    assert count_parts(features, most=6, seed=seed).number == parts


@pytest.mark.parametrize("seed", range(2))
def test_a_long_class_is_of_one_piece(seed):
    """Halves of a long Gaussian come back every time, and are none the less no parts."""
    features = np.random.default_rng(seed).normal(size=(300, WIDTH))
    features[:, 0] *= 6
    found = count_parts(features, most=5, seed=seed)
    assert found.number == 1


def test_a_known_class_in_two_pieces_is_not_new():
    random = np.random.default_rng(0)
    features, which = blobs(1, 4, 100, 9.0)
    labels = np.array([0, 1, 2, 2])[which]  # the last two are one class
    given = random.random(len(which)) < 0.3
    assert count_novel(features[given], labels[given], features[~given], most=5).number == 0


def test_the_order_of_rows_does_not_matter():
    labeled, labels, pool = scene(0, 3)
    random = np.random.default_rng(5)
    first, second = random.permutation(len(labels)), random.permutation(len(pool))
    once = count_novel(labeled, labels, pool, most=6)
    assert count_novel(labeled[first], labels[first], pool[second], most=6).number == once.number
    parts = blobs(0, 3, 60, 9.0)[0]
    once = count_parts(parts, most=5)
    assert count_parts(parts[random.permutation(len(parts))], most=5).number == once.number


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_rotation_shift_and_scale_do_not_matter(scale):
    def moved(rows):
        return scale * (rows @ turned(3) + 2.0)

    labeled, labels, pool = scene(0, 2)
    assert count_novel(moved(labeled), labels, moved(pool), most=5).number == 2
    assert count_parts(moved(blobs(0, 3, 60, 9.0)[0]), most=5).number == 3


def test_progress_goes_from_nothing_to_all():
    marks: list[tuple[int, int]] = []
    count_novel(*scene(0, 1), most=2, progress=lambda *mark: marks.append(mark))
    assert marks == [(done, counting.RESAMPLES) for done in range(counting.RESAMPLES + 1)]


def test_labels_are_names_of_classes_whatever_the_numbers():
    labeled, labels, pool = scene(0, 2)
    plain = count_novel(labeled, labels, pool, most=5)
    assert count_novel(labeled, 7 * labels - 4, pool, most=5) == plain


def test_the_same_seed_gives_the_same_count():
    given = scene(1, 2, apart=4.0)
    assert count_novel(*given, most=5, seed=3) == count_novel(*given, most=5, seed=3)


def top(found: Count, number: int) -> float:
    return next(tried.score for tried in found.candidates if tried.number == number)


def test_what_overlaps_is_less_stable_than_what_is_apart():
    far, near = (
        [count_novel(*scene(seed, 3, apart), most=5, seed=seed) for seed in range(2)]
        for apart in (9.0, 3.5)
    )
    assert np.mean([f.stability for f in far]) > np.mean([n.stability for n in near])
    assert np.mean([top(f, 3) for f in far]) > np.mean([top(n, 3) for n in near]) + 0.1
    apart, together = (
        [count_parts(blobs(seed, 4, 40, apart)[0], most=5, seed=seed) for seed in range(2)]
        for apart in (9.0, 3.0)
    )
    assert np.mean([top(f, 4) for f in apart]) > np.mean([top(n, 4) for n in together]) + 0.1


@pytest.mark.parametrize("apart", [1.0, 4.0])
def test_what_is_tried_adds_up(apart):
    for found, numbers in (
        (count_novel(*scene(2, 2, apart), most=4), range(5)),
        (count_parts(blobs(2, 2, 40, apart)[0], most=4), range(1, 5)),
    ):
        assert [tried.number for tried in found.candidates] == list(numbers)
        assert sum(tried.stability for tried in found.candidates) == pytest.approx(1)
        assert all(
            0 <= tried.score <= 1 and 0 <= tried.stability <= 1 for tried in found.candidates
        )
        chosen = found.candidates[found.number - found.candidates[0].number]
        assert (chosen.number, chosen.stability) == (found.number, found.stability)


def test_the_jaccard_index_of_a_cluster_by_hand():
    """Of six rows in two clusters, other centers put one row of the first to the second."""
    points = np.array([[0.0], [1.0], [4.0], [9.0], [10.0], [11.0]])
    own = Clustering(np.array([[1.7], [10.0]]), np.array([0, 0, 0, 1, 1, 1]), 0.0)
    few, counting.FEWEST = counting.FEWEST, 1
    try:
        found = counting._recurrence(own, points, np.array([[0.0], [7.0]]), known=0)
    finally:
        counting.FEWEST = few
    assert found.tolist() == pytest.approx([2 / 3, 3 / 4])


def test_known_rows_in_a_free_cluster_are_accounted_for():
    """Of class 0, 1 of 4 probes falls into the free cluster, and one more is taken to: 2 for 3.

    Of class 1, 1 of 2 does: as many rows are expected there as stay.
    """
    centers = np.array([[0.0], [30.0], [10.0]])
    own = Clustering(centers, np.array([0] * 30 + [1] * 12 + [2] * 80), 0.0)
    probes = np.array([[0.0], [1.0], [2.0], [9.0], [30.0], [11.0]])
    found = counting._known_share(own, probes, np.array([0, 0, 0, 0, 1, 1]), known=2)
    assert found.tolist() == pytest.approx([(30 * 2 / 3 + 12) / 80])


@pytest.mark.parametrize("novel", [0, 2])
def test_many_rows_are_sampled_and_few_are_enough(novel, monkeypatch):
    labeled, labels, pool = scene(0, novel)
    monkeypatch.setattr(counting, "ROWS", 200)
    assert count_novel(labeled, labels, pool, most=4).number == novel
    assert count_novel(labeled[::3], labels[::3], pool, most=4).number == novel


def test_rows_that_are_all_alike_are_one_thing():
    same = np.ones((40, 3))
    assert count_parts(same).number == 1
    assert count_novel(same, np.repeat([0, 1], 20), same).number == 0


def test_more_features_than_rows_and_tiny_pools_are_no_trouble():
    random = np.random.default_rng(0)
    labeled, pool = random.normal(size=(12, 50)), random.normal(size=(2, 50))
    assert count_novel(labeled, np.repeat([0, 1], 6), pool).number == 0
    assert count_parts(pool).number == 1


GOOD = np.arange(36.0).reshape(12, 3)
BAD = np.where(np.eye(12, 3) == 1, np.nan, GOOD)
TWO = [0] * 6 + [1] * 6


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (lambda: count_parts(GOOD[:1]), "(1, 3): counting wants 2 or more rows"),
        (lambda: count_parts(GOOD[0]), "the shape (3,)"),
        (lambda: count_parts(BAD), "3 of 12 rows of features hold NaN"),
        (lambda: count_parts(GOOD, most=0), "most = 0 must be 1 or more"),
        (lambda: count_novel(GOOD, TWO, GOOD[:1]), "The pool features have the shape (1, 3)"),
        (lambda: count_novel(GOOD, TWO, BAD), "3 of 12 rows of pool features hold NaN"),
        (lambda: count_novel(BAD, TWO, GOOD), "3 of 12 rows of labeled features hold NaN"),
        (lambda: count_novel(GOOD, TWO[1:], GOOD), "11 labels for 12 labeled rows"),
        (
            lambda: count_novel(GOOD, [0] * 7 + [8] * 5, GOOD),
            "Class 8 has 5 labeled rows: counting wants 6",
        ),
        (lambda: count_novel(GOOD, TWO, GOOD[:, :2]), "3 features, pool rows 2"),
    ],
)
def test_bad_input_is_one_sentence(count, words):
    with pytest.raises(InputError) as caught:
        count()
    sentence = str(caught.value)
    assert words in sentence
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
