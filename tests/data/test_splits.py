"""Splits: exact, the same everywhere, and refused where a class has too few images."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.data.readers.digits import load_digits
from protofission.data.splits.labeling import Labeling
from protofission.data.splits.registry import SPLITS, find_split, orca_split, verify
from protofission.data.splits.split import SPLIT_PARTS, Split
from reference import splits as reference
from small_splits import SMALL, small, small_split

ALL = list(SPLITS)


def weyl(size: int, num_classes: int, start: int) -> np.ndarray:
    """Labels by a formula: classes are almost equally large, and mixed."""
    places = np.arange(start, start + size, dtype=np.uint64)
    return ((places * 2654435769 % 2**32) * num_classes >> np.uint64(32)).astype(np.int64)


def synthetic(num_classes: int) -> Labeling:
    """As large as CIFAR; of 100 classes, 5 each make a coarse one."""
    train, test = weyl(50_000, num_classes, 0), weyl(10_000, num_classes, 50_000)
    if num_classes == 10:
        return Labeling(train, 10, test)
    return Labeling(train, 100, test, (), train % 20, test % 20)


SIZES = {
    # labeled, unlabeled, validation, test; novel images in the pool
    ("orca", 10): (12_597, 37_403, 0, 37_403, 25_000),
    ("orca", 100): (12_597, 37_403, 0, 37_403, 25_000),
    ("ds3l", 10): (2_000, 20_000, 0, 10_000, 6_000),
    ("ds3l", 100): (5_000, 20_000, 0, 10_000, 6_000),
    ("ds3l-code", 10): (2_400, 19_998, 3_007, 6_000, 6_000),
    ("oliver", 10): (2_400, 18_021, 3_028, 6_000, 9_014),
    ("openmatch", 10): (2_400, 47_300, 300, 10_000, 20_000),
    ("openmatch", 100): (22_000, 25_250, 2_750, 10_000, 22_500),
    ("iomatch", 10): (150, 50_000, 0, 10_000, 20_000),
    ("iomatch", 100): (1_250, 50_000, 0, 10_000, 25_000),
    ("gcd", 10): (12_500, 37_500, 0, 37_500, 25_000),
    ("gcd", 100): (20_000, 30_000, 0, 30_000, 10_000),
    ("openldn", 10): (12_500, 37_000, 500, 10_000, 24_750),
    ("openldn", 100): (12_500, 37_000, 500, 10_000, 24_750),
    ("controlled", 10): (2_000, 14_286, 0, 10_000, 4_286),
    ("controlled", 100): (5_000, 14_286, 0, 10_000, 4_286),
    ("coarse", 100): (10_000, 40_000, 0, 10_000, 0),
    ("full", 10): (50_000, 0, 0, 10_000, 0),
    ("full", 100): (50_000, 0, 0, 10_000, 0),
}
"""Sizes for CIFAR-10 and CIFAR-100 at seed 0 and default options."""

PINS = {
    ("orca", 10): (
        "519a7f008062dd7c7faf858865b04cdde74802b97f91186153d35dec18965723",
        "29c001b5302322c630dec9f1ba9dad4bf633351d5dbbb59dafd3b6843f914b60",
    ),
    ("orca", 100): (
        "0ee769f43974640660bd3366435970c2785475a2f46e748b2d7f172e59ed6bcf",
        "4d1f913f1ba2877c4e1c6fa6f13eda8438a97cb74efd78403dec4ae876902d08",
    ),
    ("ds3l", 10): (
        "2f9ae0ab6c662bcda9bcbf564506ef584721b7bd0be59e564948fa04f233b4aa",
        "9a3634b4ed4106b454aef2a84d447fb7360f77774f92f5bba2e987273fe7bab6",
    ),
    ("ds3l", 100): (
        "5e3096318581615efd88e1b7d6d7b80be55e256b27ef3c39fc59921fde86dc1e",
        "bdfce8c83849642a63de9cc7155b9bc9dc1e813b28e238ab3fba68009343a164",
    ),
    ("ds3l-code", 10): (
        "3d396cab2eb843010cb8f3c56cf6bb330fa709fe5e3bd0fb79821a10745d6198",
        "593ca0318a9068d42b9249693264dcd1d9a075f12e14abd5e017cda3860c8496",
    ),
    ("oliver", 10): (
        "065aadc9730fa7de010a03161b8c198cbfbc2375d8befaf13699e17d2286766b",
        "9642905a57d21901aed810d791eb95f19fdaf98babebf30b816706dd95436160",
    ),
    ("openmatch", 10): (
        "d057dc2aee2b0cda7d6ca9ae2293bfbd72f1bcb2e12421873deed8fe40d379e7",
        "b62b431b1d358e79cb8227d80bfbdc1ea97ab9e8bcdb2f99bd7cd6def9c84adf",
    ),
    ("openmatch", 100): (
        "dd6e4e028dd95fd4d9dc92a497728b695ad1cf455aa3489b4019613559000d0d",
        "7393eaf207dba701cbce758acae438ba119250de987b3e4ba4cb02044295be3a",
    ),
    ("iomatch", 10): (
        "c298971fdc0f3feff9209eaec4af2ce1050d3b40aa8408432f1d55ec308d123f",
        "8fc9ceef04fddf9c8455581a4cdb1a30c5ae9307d788c6316ab6f4fb2d0d94cb",
    ),
    ("iomatch", 100): (
        "b369a2c3aa3ef589d6c10506960265551ce2b6dd8fca47759eddce296a8e74ed",
        "cc7a240109a479be9c2ed7e71698329dcb1fb16c03661699f4daaae4bc036629",
    ),
    ("gcd", 10): (
        "b1c5adce3f82ee4686c1b5e8b0ad824c9955ca811bc860f037e92346c949484b",
        "5e8ebe63c3a77c973c673270a5922273e3498e3ca177e173392a3b6c9966ffcc",
    ),
    ("gcd", 100): (
        "53697f595ccd88fba5529da12ca4b0becef438aca7e01895a830c985681bdde0",
        "e0767add21640974896e0f9a27c7305f84a5357b06fdd734884c949bb4ed74d0",
    ),
    ("openldn", 10): (
        "7af5d324f5b2a59f362087c7a427c8d05e8452b17f9f8381dff523bb010ba9a3",
        "6dcb4c9651b5a03e3cd0e9c59838f99f857e5e96d7b7a02da786921664bc2a75",
    ),
    ("openldn", 100): (
        "f741b8fc225759313cc550b0e621e6d8e96623c716d6f976603ddaedc46d697a",
        "f04276e93de6ca4f1c4503ea27f283f6b0710e5f8bba68ff4bcbd8e462156270",
    ),
    ("controlled", 10): (
        "bbb95e321fbc6ef38a8deda045f6972ee956ba9c3a0768b1c70f761b3feade28",
        "0204274d6f19eebd18fce03945c8ae190bbdbad63159e8153dfeb6815f45bf44",
    ),
    ("controlled", 100): (
        "5212f252aae91a249e432c7fba52921794b4fadb46d9857a0d3bd0ce83ee27be",
        "694283ff0a2c325f143f77b15984e2ad951efeaae0b361453ae8691af7b8d5fb",
    ),
    ("coarse", 100): (
        "9af98c95b1ecfbadac0838feaf54fc7960b734ab0020b6f0e4f380e014779f6e",
        "12f9acea18c0629a18cc938702fd0ea069374e88e5ce491fc87ebb5c687b5086",
    ),
    ("full", 10): ("7d4b4f5f49fff3a5d780095ce15fea3c32e979aa9fd2b055f93327278662ab32",) * 2,
    ("full", 100): ("633185c9b2f08bc2aa37ee9f60a60745d1dc854daa6254cd8a2f75ece8d76d14",) * 2,
}
"""SHA-256 at seed 0 and default options: of the labels by formula, and of CIFAR's."""


def novel_in_pool(split: Split) -> int:
    return sum(split.counts["unlabeled"][label] for label in split.novel_classes)


def test_every_split_has_a_pin() -> None:
    assert {name for name, _ in PINS} == set(SPLITS)
    assert set(PINS) == set(SIZES)
    assert [find_split(name).name for name in SPLITS] == ALL


@pytest.mark.parametrize(("name", "num_classes"), PINS)
def test_fingerprint_of_labels_by_formula_is_pinned(name: str, num_classes: int) -> None:
    assert find_split(name).split(synthetic(num_classes)).sha256 == PINS[name, num_classes][0]


@pytest.mark.parametrize("num_classes", [10, 100])
def test_fingerprints_and_sizes_of_cifar_are_pinned(num_classes: int) -> None:
    cifar = pytest.importorskip("protofission.data.readers.cifar")
    folder = os.environ.get("PROTOFISSION_DATA", "")
    if not folder or not Path(folder).exists():
        pytest.skip("PROTOFISSION_DATA names no folder")
    load = {10: cifar.load_cifar10, 100: cifar.load_cifar100}[num_classes]
    data = Labeling.of(load(Path(folder)))
    for name in [name for name, classes in PINS if classes == num_classes]:
        split = find_split(name).split(data)
        sizes = tuple(len(getattr(split, part)) for part in SPLIT_PARTS)
        assert (*sizes, novel_in_pool(split)) == SIZES[name, num_classes], name
        assert split.sha256 == PINS[name, num_classes][1], name
        verify(split, data)


@pytest.mark.parametrize("num_classes", [10, 100])
def test_orca_counts_on_fifty_thousand_images_are_the_published_ones(num_classes: int) -> None:
    labels = np.random.default_rng(1).permutation(
        np.repeat(np.arange(num_classes), 50_000 // num_classes)
    )
    split = orca_split(labels, num_classes)
    assert (len(split.labeled), len(split.unlabeled)) == (12_597, 37_403)
    assert novel_in_pool(split) == 25_000


def test_digits_split_has_a_pinned_fingerprint() -> None:
    images = load_digits()
    split = orca_split(images.labels, 10)
    assert (len(split.labeled), len(split.unlabeled)) == (465, 1332)
    assert split.sha256 == DIGITS_SHA256


DIGITS_SHA256 = "d3db5241fab8706d769aef0b7dfd840b7f1de47d145afd75684bc21c57a0c353"


@st.composite
def labelings(draw: st.DrawFn, coarse: bool = False) -> Labeling:
    """Any number of images of any class, some without a label, in any order."""
    num_classes = draw(st.integers(2, 7))
    counts = draw(st.lists(st.integers(3, 24), min_size=num_classes, max_size=num_classes))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    labels = np.repeat(np.arange(-1, num_classes), [draw(st.integers(0, 5)), *counts])
    train = generator.permutation(labels)
    test = generator.integers(-1, num_classes, 12)
    if not coarse:
        return Labeling(train, num_classes, test)
    # the last place is what -1 points to: an image without a fine label has no coarse one
    coarse_of = np.append(np.arange(num_classes) // 2, -1)
    names = tuple("abcd"[: (num_classes + 1) // 2])
    return Labeling(train, num_classes, test, (), coarse_of[train], coarse_of[test], names)


def listed(labels: np.ndarray | None) -> list[int]:
    assert labels is not None
    return labels.tolist()


def same(make: Callable[[], Split], twin: Callable[[], reference.Split]) -> Split | None:
    """The split, equal to its twin; None where both say that the same class has too few images."""
    try:
        expected = twin()
    except reference.ShortError as short:
        label, has, wanted = short.args
        with pytest.raises(InputError, match=rf"^Class {label} (\(\w\) )?has ") as caught:
            make()
        if "no labeled image" not in str(caught.value):
            assert f"has {has} images" in str(caught.value)
            assert f"but {wanted} are wanted" in str(caught.value)
        return None
    split = make()
    assert {part: getattr(split, part).tolist() for part in SPLIT_PARTS} == expected
    return split


def permutation(seed: int) -> reference.Permutation:
    generator = np.random.RandomState(seed)
    return lambda size: generator.permutation(size).tolist()


def numbers(seed: int, size: int) -> list[int]:
    return np.random.PCG64(seed).random_raw(size).tolist()


SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.95])
RATIOS = st.sampled_from(["0", "0.1", "0.25", "0.3", "0.5", "0.7", "0.95", "1"])


@given(data=labelings(), seed=SEEDS, share=SHARES, num_seen=st.integers(1, 7))
def test_orca_is_its_twin(data: Labeling, seed: int, share: float, num_seen: int) -> None:
    assume(num_seen <= data.num_classes)
    spec = find_split("orca", {"labeled_share": share, "num_seen": num_seen}, seed=seed)
    draw = np.random.RandomState(seed).random_sample
    split = same(
        lambda: spec.split(data), lambda: reference.orca(listed(data.train), num_seen, share, draw)
    )
    if split and (data.train >= 0).all():
        assert np.array_equal(split.test, split.unlabeled)


@given(data=labelings(), seed=SEEDS, share=SHARES, num_seen=st.integers(1, 7))
def test_gcd_is_its_twin(data: Labeling, seed: int, share: float, num_seen: int) -> None:
    assume(num_seen <= data.num_classes)
    spec = find_split("gcd", {"labeled_share": share, "num_seen": num_seen}, seed=seed)
    same(
        lambda: spec.split(data),
        lambda: reference.gcd(listed(data.train), num_seen, share, permutation(seed)),
    )


@given(data=labelings(), seed=SEEDS, share=SHARES, left=st.sampled_from([0, 0.01, 0.2, 0.6]))
def test_openldn_is_its_twin(data: Labeling, seed: int, share: float, left: float) -> None:
    spec = find_split("openldn", {"labeled_share": share, "validation_share": left}, seed=seed)
    num_seen = (data.num_classes + 1) // 2
    same(
        lambda: spec.split(data),
        lambda: reference.openldn(
            listed(data.train),
            listed(data.test),
            data.num_classes,
            num_seen,
            share,
            left,
            np.random.RandomState(seed).shuffle,
        ),
    )


@given(
    data=labelings(),
    seed=SEEDS,
    ratio=RATIOS,
    images=st.integers(0, 60),
    labels=st.integers(1, 8),
    held_out=st.none() | st.integers(1, 4),
    name=st.sampled_from(["ds3l", "controlled"]),
)
def test_splits_with_a_ratio_are_their_twins(
    data: Labeling,
    seed: int,
    ratio: str,
    images: int,
    labels: int,
    held_out: int | None,
    name: str,
) -> None:
    assume(name == "ds3l" or ratio != "1")
    size = {"ds3l": "unlabeled", "controlled": "seen_images"}[name]
    pool = {"ds3l": reference.ds3l_pool, "controlled": reference.controlled_pool}[name]
    options = {"ratio": ratio, size: images, "labels_per_class": labels}
    spec = find_split(name, {**options, "test_per_class": held_out}, seed=seed)
    split = same(
        lambda: spec.split(data),
        lambda: reference.mismatch(
            listed(data.train),
            listed(data.test),
            data.num_classes,
            data.num_classes // 2,
            labels,
            pool(ratio, images),
            held_out,
            numbers(seed, len(data.train)),
        ),
    )
    if split:
        assert split.test_on == ("train" if held_out else "test")
        assert abs(novel_in_pool(split) - float(ratio) * len(split.unlabeled)) <= 0.5


@given(
    data=labelings(),
    seed=SEEDS,
    ratio=RATIOS,
    images=st.integers(0, 60),
    labels=st.integers(1, 8),
    set_aside=st.integers(0, 20),
    first=st.integers(0, 3),
)
def test_ds3l_code_is_its_twin(
    data: Labeling,
    seed: int,
    ratio: str,
    images: int,
    labels: int,
    set_aside: int,
    first: int,
) -> None:
    seen = list(range(first, data.num_classes))[: data.num_classes // 2 + 1]
    assume(0 < len(seen) < data.num_classes)
    assume(set_aside < len(data.train))
    options = {"ratio": ratio, "unlabeled": images, "labels_per_class": labels}
    options |= {"validation": set_aside, "seen_classes": seen}
    same(
        lambda: find_split("ds3l-code", options, seed=seed).split(data),
        lambda: reference.ds3l_code(
            listed(data.train),
            listed(data.test),
            data.num_classes,
            seen,
            labels,
            images,
            float(ratio),
            set_aside,
            permutation((1 + seed) % 2**32),
        ),
    )


@given(
    data=labelings(),
    seed=SEEDS,
    novel=st.integers(0, 4),
    labels=st.integers(1, 20),
    set_aside=st.integers(0, 20),
)
def test_oliver_is_its_twin(
    data: Labeling, seed: int, novel: int, labels: int, set_aside: int
) -> None:
    seen = list(range(data.num_classes))[1::2]
    others = list(range(data.num_classes))[::2]
    wanted = min(4, data.num_classes)
    novel = min(novel, wanted)
    assume(novel <= len(others) and wanted - novel <= len(seen) and set_aside < len(data.train))
    options = {"ratio": novel / wanted, "pool_classes": wanted, "labels_per_class": labels}
    assume((novel * 4) % wanted == 0)  # thirds are no decimals
    options |= {"validation": set_aside, "seen_classes": seen}
    pool_classes = others[:novel] + seen[::-1][: wanted - novel]
    same(
        lambda: find_split("oliver", options, seed=seed).split(data),
        lambda: reference.oliver(
            listed(data.train),
            listed(data.test),
            seen,
            pool_classes,
            labels,
            set_aside,
            permutation(seed),
        ),
    )


@given(
    data=labelings(coarse=True),
    seed=SEEDS,
    labels=st.integers(1, 12),
    left=st.integers(0, 6),
    seen_coarse=st.integers(1, 4),
    name=st.sampled_from(["openmatch", "iomatch"]),
    keep=st.booleans(),
)
def test_open_set_splits_are_their_twins(
    data: Labeling,
    seed: int,
    labels: int,
    left: int,
    seen_coarse: int,
    name: str,
    keep: bool,
) -> None:
    seen = [label for label in range(data.num_classes) if label // 2 < seen_coarse]
    options: dict[str, Any] = {"labels_per_class": labels, "seen_coarse": seen_coarse}
    if name == "openmatch":
        options["validation_per_class"], keep = left, False
    else:
        options["pool_has_labeled"], left = keep, 0
    split = same(
        lambda: find_split(name, options, seed=seed).split(data),
        lambda: reference.per_class(
            listed(data.train),
            listed(data.test),
            seen,
            (labels, left),
            keep,
            permutation(seed),
        ),
    )
    if split:
        assert list(split.seen_classes) == seen


@given(
    data=labelings(coarse=True),
    seed=SEEDS,
    labels=st.integers(1, 12),
    fewer=st.integers(0, 2),
    merge=st.none() | st.integers(1, 7),
)
def test_coarse_is_its_twin(
    data: Labeling, seed: int, labels: int, fewer: int, merge: int | None
) -> None:
    group = merge or 2  # the data set's own coarse classes are pairs
    num_classes = -(-data.num_classes // group)
    num_seen = max(1, num_classes - fewer)
    options = {"labels_per_class": labels, "num_seen": num_seen, "merge": merge}
    coarse_of = [label // group for label in range(data.num_classes)] + [-1]
    split = same(
        lambda: find_split("coarse", options, seed=seed).split(data),
        lambda: reference.coarse(
            [coarse_of[label] for label in listed(data.train)],
            [coarse_of[label] for label in listed(data.test)],
            num_classes,
            num_seen,
            labels,
            numbers(seed, len(data.train)),
        ),
    )
    if split:
        assert split.classes == "coarse"
        assert len(split.seen_classes + split.novel_classes) == num_classes


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("extra", [0, 9])
def test_parts_are_in_range_unique_and_apart(name: str, extra: int) -> None:
    data, split = small(extra), small_split(name, extra=extra)
    for part in SPLIT_PARTS:
        indices = getattr(split, part)
        size = 60 if part == "test" and split.test_on == "test" else 240 + extra
        assert indices.dtype == np.int64
        assert len(indices) == 0 or (indices[0] >= 0 and indices[-1] < size)
        assert (np.diff(indices) > 0).all()
    labeled, pool, left = set(split.labeled), set(split.unlabeled), set(split.validation)
    assert not left & (labeled | pool)
    if name not in ("iomatch", "oliver"):
        assert not labeled & pool
    labels = data.coarse_train if name == "coarse" else data.train
    assert labels is not None
    assert set(labels[split.labeled]) == set(split.seen_classes)
    for part in ("labeled", "unlabeled", "validation"):
        held = labels[getattr(split, part)]
        assert [(held == c).sum() for c in range(len(split.counts[part]))] == list(
            split.counts[part]
        )
        assert (held >= 0).all() or part == "unlabeled"
    takes_strangers = ("orca", "openmatch", "iomatch", "gcd", "openldn", "coarse", "full")
    assert (labels[split.unlabeled] == -1).sum() == (extra if name in takes_strangers else 0)


@pytest.mark.parametrize("name", ALL)
def test_the_seed_alone_decides(name: str) -> None:
    global_state = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    assert small_split(name).sha256 == small_split(name).sha256
    assert len({small_split(name, seed).sha256 for seed in range(5)}) == (
        1 if name == "full" else 5
    )
    assert np.array_equal(global_state, np.random.get_state()[1])  # type: ignore[index,arg-type]


@pytest.mark.parametrize("name", ALL)
def test_the_labels_of_the_test_set_decide_nothing_about_training(name: str) -> None:
    data, split = small(), small_split(name)
    assert data.test is not None
    other = Labeling(
        data.train, 6, data.test[::-1].copy(), (), data.coarse_train, data.coarse_test, "xyz"
    )
    again = find_split(name, SMALL[name]).split(other)
    for part in ("labeled", "unlabeled", "validation"):
        assert np.array_equal(getattr(split, part), getattr(again, part))


@given(seed=st.integers(0, 50), ratios=st.lists(st.integers(0, 75), min_size=2, max_size=4))
def test_controlled_pools_are_nested_and_all_else_is_the_same(seed: int, ratios: list[int]) -> None:
    data = small()
    splits = []
    for percent in sorted(ratios):
        options = {**SMALL["controlled"], "ratio": percent / 100}
        splits.append(find_split("controlled", options, seed=seed).split(data))
    for less, more in itertools.pairwise(splits):
        assert set(less.unlabeled) <= set(more.unlabeled)
        assert np.array_equal(less.labeled, more.labeled)
        seen = [split.unlabeled[data.train[split.unlabeled] < 3] for split in (less, more)]
        assert np.array_equal(*seen)
        assert len(seen[0]) == 30


@given(seed=st.integers(0, 50), ratio=st.integers(0, 100))
def test_ds3l_keeps_its_labeled_images_at_every_ratio(seed: int, ratio: int) -> None:
    options = {**SMALL["ds3l"], "ratio": ratio / 100}
    split = find_split("ds3l", options, seed=seed).split(small())
    at_zero = find_split("ds3l", {**options, "ratio": 0}, seed=seed).split(small())
    assert np.array_equal(split.labeled, at_zero.labeled)
    assert len(split.unlabeled) == 60
    assert max(split.counts["unlabeled"][:3]) - min(split.counts["unlabeled"][:3]) <= 1
    assert max(split.counts["unlabeled"][3:]) - min(split.counts["unlabeled"][3:]) <= 1


def test_oliver_pools_are_the_published_classes() -> None:
    train = np.tile(np.arange(10), 30)
    options = {"labels_per_class": 3, "validation": 30}
    pools = {}
    for ratio in (0, 0.25, 0.5, 0.75, 1):
        split = find_split("oliver", {**options, "ratio": ratio}).split(Labeling(train, 10, train))
        pools[ratio] = set(train[split.unlabeled].tolist())
        assert split.seen_classes == (2, 3, 4, 5, 6, 7)
        assert split.novel_classes == (0, 1, 8, 9)
    assert pools == {
        0: {4, 5, 6, 7},
        0.25: {0, 5, 6, 7},
        0.5: {0, 1, 6, 7},
        0.75: {0, 1, 7, 8},
        1: {0, 1, 8, 9},
    }


def test_judging_follows_the_protocol() -> None:
    data = small()
    assert data.test is not None
    for name in ("ds3l-code", "oliver"):
        assert set(data.test[small_split(name).test]) == {1, 2, 4}
        split = find_split(name, {**SMALL[name], "test_classes": "all"}).split(data)
        assert len(split.test) == 60
    for name in ("ds3l", "openmatch", "iomatch", "openldn", "controlled", "coarse"):
        assert (small_split(name).test_on, len(small_split(name).test)) == ("test", 60)
    for name in ("orca", "gcd"):
        assert small_split(name).test_on == "train"
        assert not set(small_split(name, extra=9).test) & set(small_split(name, extra=9).labeled)


def test_pool_may_hold_the_labeled_images_but_the_test_set_does_not() -> None:
    split = orca_split(np.repeat(np.arange(4), 20), 4, pool_has_labeled=True)
    assert len(split.unlabeled) == 80
    assert not set(split.test) & set(split.labeled)
    for name in ("oliver", "iomatch"):
        assert set(small_split(name).labeled) & set(small_split(name).unlabeled)
        split = find_split(name, {**SMALL[name], "pool_has_labeled": "false"}).split(small())
        assert set(small_split(name).unlabeled) - set(split.unlabeled) == set(split.labeled) & set(
            small_split(name).unlabeled
        )
        assert not set(split.labeled) & set(split.unlabeled)


def test_renumbering_puts_seen_classes_first_and_leaves_no_label_alone() -> None:
    split = small_split("oliver")  # seen: 1, 2, 4
    labels = np.array([0, 1, 2, 3, 4, 5, -1])
    assert split.renumber(labels).tolist() == [3, 0, 1, 4, 2, 5, -1]


def test_fingerprint_tells_what_indices_alone_do_not() -> None:
    labels = np.repeat(np.arange(4), 20)
    assert orca_split(labels, 4).sha256 != orca_split(labels, 4, pool_has_labeled=True).sha256
    parts: tuple[Any, ...] = ("any", 0, (0,), (1,), np.arange(2), np.arange(3), np.arange(4))
    others = [
        Split(*parts),
        Split(*parts, test_on="test"),
        Split(*parts, classes="coarse"),
        Split(*parts, validation=np.arange(4, 5)),
        Split(*parts, validation=np.arange(4, 6)),
    ]
    assert len({split.sha256 for split in others}) == len(others)


def test_a_class_that_is_short_is_named_with_its_counts() -> None:
    data = small()
    for name, options, sentence in [
        (
            "ds3l",
            {"unlabeled": 0, "labels_per_class": 41},
            "Class 0 (ant) has 40 images, but 41 are wanted: "
            "lower labels_per_class or unlabeled, or raise ratio.",
        ),
        (
            "controlled",
            {"seen_images": 90, "labels_per_class": 4, "ratio": 0.6},
            "Class 3 (dog) has 40 images, but 45 are wanted: lower seen_images or ratio.",
        ),
        (
            "iomatch",
            {"labels_per_class": 1500},
            "Class 0 (ant) has 40 images, but 1,500 are wanted: lower labels_per_class.",
        ),
        (
            "openldn",
            {"labeled_share": 0.999},
            "Class 0 (ant) has 40 images, but 41 are wanted: "
            "lower labeled_share or validation_share, or add images.",
        ),
    ]:
        with pytest.raises(InputError) as caught:
            find_split(name, options).split(data)
        assert str(caught.value) == sentence
    with pytest.raises(InputError, match=r"Class 1 \(bee\) has 3\d images outside the validation"):
        find_split("ds3l-code", {**SMALL["ds3l-code"], "labels_per_class": 39}).split(data)
    with pytest.raises(InputError, match=r"Class 0 \(x\) has 80 images, but 81 are wanted"):
        find_split("coarse", {"labels_per_class": 81}).split(data)


def test_a_class_without_labeled_images_is_named() -> None:
    with pytest.raises(InputError, match="Class 1 has no labeled image among its 0"):
        orca_split(np.array([0] * 20 + [2] * 20 + [3] * 20), 4)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"orca", "gcd"}))
def test_a_data_set_without_test_images_is_told_what_to_do(name: str) -> None:
    data = small()
    without = Labeling(data.train, 6, None, (), data.coarse_train, None, ("x", "y", "z"))
    with pytest.raises(InputError, match=r"no official test images.*choose orca or gcd"):
        find_split(name, SMALL[name]).split(without)
    if name in ("ds3l", "controlled", "coarse"):
        split = find_split(name, {**SMALL[name], "test_per_class": 5}).split(without)
        assert set(split.counts["test"]) == {5}
        parts = [set(getattr(split, part)) for part in ("labeled", "unlabeled", "test")]
        assert sum(map(len, parts)) == len(set.union(*parts))
        again = find_split(name, SMALL[name]).split(data)
        assert np.array_equal(split.labeled, again.labeled)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("orca", {"num_seen": 0}, "num_seen = 0"),
        ("orca", {"num_seen": 7}, "num_seen = 7 must be between 1 and the number of classes, 6"),
        ("orca", {"labeled_share": 1.0}, "labeled_share = 1.0"),
        ("orca", {"labeled_share": 0.0}, "labeled_share = 0.0"),
        ("orca", {"seed": -1}, "seed = -1"),
        ("orca", {"seed": 2**32}, "seed = 4294967296"),
        ("gcd", {"labeled_share": "1.5"}, "labeled_share = 1.5"),
        ("openldn", {"validation_share": 1}, "validation_share = 1"),
        ("ds3l", {"ratio": 1.2}, "ratio = 1.2"),
        ("ds3l", {"ratio": "a lot"}, "ratio = 'a lot' must be a finite number"),
        ("ds3l", {"ratio": "nan"}, "ratio = 'nan' must be a finite number"),
        ("ds3l", {"unlabeled": -1}, "unlabeled = -1"),
        ("ds3l", {"unlabeled": "1e4"}, "unlabeled = '1e4' must be a whole number"),
        ("ds3l", {"unlabeled": 2.0}, "unlabeled = '2.0' must be a whole number"),
        ("ds3l", {"labels_per_class": 0}, "labels_per_class = 0"),
        ("ds3l", {}, "labels_per_class has a default for 10 and 100 classes, but here are 6"),
        (
            "ds3l",
            {"num_seen": 6, "labels_per_class": 1},
            "ratio = 0.3 asks for novel images, but all 6 classes are seen",
        ),
        ("controlled", {"ratio": 1}, "ratio = 1"),
        ("ds3l-code", {}, "CIFAR-10, but here are 6 classes: name them with seen_classes"),
        ("ds3l-code", {"seen_classes": "1,6"}, "seen_classes names class 6"),
        ("ds3l-code", {"seen_classes": [1, 1]}, "none twice"),
        ("ds3l-code", {"seen_classes": []}, "seen_classes = '' must be a whole number"),
        ("ds3l-code", {"seen_classes": "0,1,2,3,4,5"}, "All 6 classes are seen"),
        (
            "oliver",
            {"seen_classes": "1,2,4", "validation": 240},
            "validation = 240 must be below the number of training images, 240",
        ),
        ("oliver", {"ratio": 0.3}, "ratio = 0.3 of 4 classes is not a whole number"),
        ("oliver", {"seen_classes": "1"}, "2 seen and 2 novel classes is wanted, but there are 1"),
        ("oliver", {"pool_has_labeled": "yes"}, "pool_has_labeled = 'yes' must be true or false"),
        ("oliver", {"test_classes": "al"}, "Unknown value of test_classes: 'al'. Did you mean"),
        ("openmatch", {"seen_coarse": 0}, "seen_coarse = 0"),
        ("iomatch", {"ratio": 0.3}, "Unknown option of the split 'iomatch': 'ratio'"),
        ("orca", {"labelled_share": 0.5}, "Did you mean 'labeled_share'"),
        ("orca", {"name": "gcd"}, "Unknown option of the split 'orca': 'name'"),
        ("ocra", {}, "Unknown split 'ocra'. Did you mean 'orca'"),
    ],
)
def test_what_cannot_be_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        find_split(name, options).split(small())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_that_are_no_classes_are_refused() -> None:
    with pytest.raises(InputError, match="A train label is -2, but there are 2 classes"):
        Labeling(np.array([0, -2, 1]), 2)
    with pytest.raises(InputError, match="A test label is 2, but there are 2 classes"):
        Labeling(np.array([0, 1]), 2, np.array([2]))
    with pytest.raises(InputError, match="1 coarse labels do not fit 2 fine ones"):
        Labeling(np.array([0, 1]), 2, coarse_train=np.array([0]))
    with pytest.raises(InputError, match="Class 1 has two coarse classes"):
        find_split("iomatch", {"labels_per_class": 1, "seen_coarse": 1}).split(
            Labeling(np.array([0, 1, 1]), 2, np.array([0]), coarse_train=np.array([0, 0, 1]))
        )


def test_text_and_values_make_the_same_spec() -> None:
    text = {"ratio": "0.5", "labels_per_class": " 7", "seen_classes": "4, 1,2"}
    values = {"ratio": 0.5, "labels_per_class": 7, "seen_classes": (4, 1, 2)}
    assert find_split("ds3l-code", text, seed=3) == find_split("ds3l-code", {**values, "seed": 3})
    assert find_split("ds3l", {"labels_per_class": "none"}) == find_split("ds3l")
