"""Splits: exact, the same everywhere, and refused where a class would be empty."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.data.digits import load_digits
from protofission.data.splits import orca_split


@pytest.mark.parametrize("num_classes", [10, 100])
def test_orca_counts_on_fifty_thousand_images_are_the_published_ones(num_classes: int) -> None:
    labels = np.random.default_rng(1).permutation(
        np.repeat(np.arange(num_classes), 50_000 // num_classes)
    )
    split = orca_split(labels, num_classes)
    assert (len(split.labeled), len(split.unlabeled)) == (12_597, 37_403)
    assert (labels[split.unlabeled] >= num_classes // 2).sum() == 25_000


def test_orca_draws_once_for_each_seen_image_in_file_order() -> None:
    labels = np.array([3, 0, 1, 2, 0, 1, 1, 0] * 5)
    generator, labeled = np.random.RandomState(7), []
    for place, label in enumerate(labels):
        if label < 2 and generator.random_sample() < 0.5:
            labeled.append(place)
    assert orca_split(labels, 4, seed=7).labeled.tolist() == labeled


def test_digits_split_has_a_pinned_fingerprint() -> None:
    images = load_digits()
    split = orca_split(images.labels, 10)
    assert (len(split.labeled), len(split.unlabeled)) == (465, 1332)
    assert split.sha256 == DIGITS_SHA256


DIGITS_SHA256 = "d3db5241fab8706d769aef0b7dfd840b7f1de47d145afd75684bc21c57a0c353"


@given(
    counts=st.lists(st.integers(8, 40), min_size=2, max_size=8),
    seed=st.integers(0, 1000),
    share=st.sampled_from([0.5, 0.8]),
)
def test_labeled_and_pool_partition_the_images(counts: list[int], seed: int, share: float) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    try:
        split = orca_split(labels, len(counts), labeled_share=share, seed=seed)
    except ValueError:
        return  # a class without a labeled image is refused, see below
    together = np.sort(np.concatenate([split.labeled, split.unlabeled]))
    assert together.tolist() == list(range(len(labels)))
    assert set(labels[split.labeled]) == set(split.seen_classes)
    assert np.array_equal(split.test, split.unlabeled)


def test_pool_may_hold_the_labeled_images_but_the_test_set_does_not() -> None:
    labels = np.repeat(np.arange(4), 20)
    split = orca_split(labels, 4, pool_has_labeled=True)
    assert len(split.unlabeled) == 80
    assert not set(split.test) & set(split.labeled)


def test_a_class_without_labeled_images_is_named() -> None:
    with pytest.raises(ValueError, match="Class 1 has no labeled image among its 0"):
        orca_split(np.array([0] * 20 + [2] * 20 + [3] * 20), 4)


def test_fingerprint_changes_with_seed_and_moves_between_parts() -> None:
    labels = np.repeat(np.arange(4), 20)
    assert orca_split(labels, 4).sha256 == orca_split(labels, 4).sha256
    assert orca_split(labels, 4).sha256 != orca_split(labels, 4, seed=1).sha256
    assert orca_split(labels, 4).sha256 != orca_split(labels, 4, pool_has_labeled=True).sha256


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_seen": 0}, "num_seen = 0"),
        ({"num_seen": 5}, "num_seen = 5"),
        ({"labeled_share": 1.0}, "labeled_share = 1.0"),
        ({"labeled_share": 0.0}, "labeled_share = 0.0"),
    ],
)
def test_impossible_splits_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        orca_split(np.repeat(np.arange(4), 20), 4, **options)  # type: ignore[arg-type]
