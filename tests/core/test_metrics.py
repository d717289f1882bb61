"""Metrics against brute force and scikit-learn, and the pitfalls of open-world evaluation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import (
    adjusted_rand_score,
    average_precision_score,
    normalized_mutual_info_score,
    roc_auc_score,
    roc_curve,
)

from protofission.core.errors import InputError
from protofission.core.metrics import (
    Accuracy,
    accuracy,
    ari,
    aupr,
    auroc,
    contingency,
    count_matches,
    fpr_at_tpr,
    nmi,
    prototype_health,
    subclass_score,
)
from reference import metrics as scalar

close = pytest.approx
SEEDS = range(4)
PROTOCOLS = ("orca", "strict")


def draw(seed: int, classes: int, heads: int, n: int = 60) -> tuple[list[int], list[int]]:
    """Labels, and heads that agree with them now and then."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=n)
    guesses = np.where(random.random(n) < 0.4, labels % heads, random.integers(heads, size=n))
    return labels.tolist(), guesses.tolist()


def judge(labels: list[int], heads: list[int], seen: int, protocol: str) -> Accuracy:
    counts = contingency(labels, heads, max(labels) + 1, max(heads) + 1)
    return accuracy(counts, seen, protocol)


@pytest.mark.parametrize(("classes", "heads"), [(5, 5), (5, 7), (6, 4), (3, 3)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_matching_equals_brute_force(seed, classes, heads):
    """As many heads as classes, more, and fewer."""
    labels, guesses = draw(seed, classes, heads)
    counts = contingency(labels, guesses, classes, heads)
    assert counts.tolist() == scalar.contingency(labels, guesses, classes, heads)
    assert count_matches(counts) == scalar.count_matches(counts.tolist())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("classes", "heads"), [(5, 5), (5, 6), (6, 4), (5, 2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_accuracies_equal_brute_force(seed, classes, heads, protocol):
    labels, guesses = draw(seed, classes, heads)
    found = accuracy(contingency(labels, guesses, classes, heads), 3, protocol)
    assert vars(found) == {
        name: close(value, nan_ok=True)
        for name, value in scalar.accuracy(labels, guesses, 3, protocol).items()
    }


def test_counts_are_classes_by_heads():
    assert contingency([0, 0, 1], [2, 2, 0], 2, 3).tolist() == [[0, 0, 2], [1, 0, 0]]


def test_swapped_arguments_are_noticed_where_heads_and_classes_differ():
    labels, heads = [0, 1, 2], [0, 1, 4]
    assert contingency(labels, heads, 3, 5).sum() == 3
    with pytest.raises(InputError, match=r"A label lies outside 0 \.\.\. 2"):
        contingency(heads, labels, 3, 5)


def test_swapped_arguments_change_the_verdict():
    """Two seen classes: images of class 1 on head 0. The other way round all of them are novel."""
    labels, heads = [0, 1, 1, 2], [0, 0, 2, 2]
    assert judge(labels, heads, 2, "strict") == Accuracy(close(1 / 3), close(1), close(1 / 2))
    assert judge(heads, labels, 2, "strict") == Accuracy(close(1 / 2), close(1 / 2), close(1 / 2))


def test_novel_images_on_seen_heads_are_right_for_orca_and_wrong_for_strict():
    """Peers, finding 3: every novel class sits one-to-one on a seen head."""
    labels = [0, 1, 2, 3] * 5
    heads = [0, 1, 0, 1] * 5
    assert judge(labels, heads, 2, "orca") == Accuracy(1.0, 1.0, 0.5)
    counts = contingency(labels, heads, 4, 4)
    assert accuracy(counts, 2, "orca") == Accuracy(1.0, 1.0, 0.5)
    assert accuracy(counts, 2, "strict") == Accuracy(1.0, 0.0, 0.5)


def test_seen_images_on_novel_heads_are_right_for_orca_s_all_and_wrong_for_strict():
    """A seen class that hides behind a novel head: the global matching forgives it."""
    counts = contingency([0, 0, 1, 1], [1, 1, 0, 0], 2, 2)
    assert accuracy(counts, 1, "orca") == Accuracy(0.0, 1.0, 1.0)
    assert accuracy(counts, 1, "strict") == Accuracy(0.0, 0.0, 0.0)


def test_two_seen_classes_that_change_heads_are_wrong_in_strict():
    counts = contingency([0, 1, 2], [1, 0, 2], 3, 3)
    assert accuracy(counts, 2, "orca") == Accuracy(0.0, 1.0, 1.0)
    assert accuracy(counts, 2, "strict") == Accuracy(0.0, 1.0, close(1 / 3))


def test_an_empty_head_is_not_left_out_of_the_matching():
    """OpenLDN sized its matrix by the distinct predictions and said 0.60."""
    labels, heads = [0, 1, 2, 3, 4] * 2, [0, 1, 1, 3, 4] * 2
    for protocol in PROTOCOLS:
        assert judge(labels, heads, 0, protocol).novel == close(0.8)
        assert judge(labels, heads, 1, protocol).all == close(0.8)


def test_more_clusters_than_classes_leave_some_unmatched():
    """Two novel classes over three heads: one class is split, its smaller half is wrong."""
    labels, heads = [1] * 5 + [2] * 5, [1, 1, 1, 2, 2, 3, 3, 3, 3, 3]
    for protocol in PROTOCOLS:
        assert judge(labels, heads, 1, protocol).novel == close(0.8)


def test_fewer_heads_than_classes_leave_classes_unmatched():
    labels, heads = [1] * 5 + [2] * 3, [1] * 8
    for protocol in PROTOCOLS:
        assert judge(labels, heads, 1, protocol).novel == close(5 / 8)


def test_without_novel_heads_strict_finds_no_novel_image():
    counts = contingency([0, 1, 2, 2], [0, 1, 0, 0], 3, 2)
    assert accuracy(counts, 2, "strict") == Accuracy(1.0, 0.0, 0.5)


def test_nothing_to_judge_is_nan():
    found = accuracy(contingency([0, 1], [0, 0], 2, 2), 2, "strict")
    assert (found.seen, found.all) == (0.5, 0.5)
    assert math.isnan(found.novel)
    assert math.isnan(accuracy(contingency([1], [1], 2, 2), 1, "orca").seen)


def test_matching_shard_by_shard_would_inflate():
    """Peers, finding 8: random predictions look better the smaller the shard."""
    random = np.random.default_rng(0)
    labels, heads = random.integers(5, size=(2, 400)).tolist()
    counts = contingency(labels, heads, 5, 5)
    assert count_matches(counts) == scalar.count_matches(counts.tolist())
    shards = [slice(start, start + 40) for start in range(0, 400, 40)]
    by_shard = sum(count_matches(contingency(labels[s], heads[s], 5, 5)) for s in shards)
    assert by_shard > count_matches(counts) + 30  # eight points of accuracy out of nothing
    assert accuracy(counts, 0, "orca").all == count_matches(counts) / 400


def tables(rows: int, columns: int) -> st.SearchStrategy[np.ndarray]:
    row = st.lists(st.integers(0, 9), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(np.array)


@given(tables(5, 6), st.integers(0, 5))
def test_strict_never_exceeds_orca(counts, seen):
    assume(counts[:seen].sum() and counts[seen:].sum())
    strict, orca = (accuracy(counts, seen, protocol) for protocol in ("strict", "orca"))
    assert strict.seen == orca.seen
    assert strict.novel <= orca.novel
    assert strict.all <= orca.all


@given(tables(5, 6), st.permutations(range(2, 6)), st.sampled_from(PROTOCOLS))
def test_the_names_of_novel_heads_mean_nothing(counts, order, protocol):
    assume(counts[:2].sum() and counts[2:].sum())
    assert accuracy(counts[:, [0, 1, *order]], 2, protocol) == accuracy(counts, 2, protocol)


@given(tables(4, 5))
def test_the_matching_is_symmetric_and_at_least_the_diagonal(counts):
    assert count_matches(counts) == count_matches(counts.T)
    assert np.trace(counts) <= count_matches(counts) <= counts.max(1).sum()


def scores(seed: int) -> tuple[list[float], list[float]]:
    """OOD scores of ID and of OOD images, with ties within and between."""
    random = np.random.default_rng(seed)
    inside = random.normal(0, 1, 30).round(1)
    outside = random.normal(0.7, 1, 23).round(1)
    return inside.tolist(), outside.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_auroc_and_aupr_equal_their_twins_and_scikit_learn(seed):
    inside, outside = scores(seed)
    truth, values = [0] * len(inside) + [1] * len(outside), inside + outside
    assert auroc(inside, outside) == close(scalar.auroc(inside, outside))
    assert auroc(inside, outside) == close(roc_auc_score(truth, values))
    assert aupr(inside, outside) == close(scalar.aupr(inside, outside))
    assert aupr(inside, outside) == close(average_precision_score(truth, values))


@pytest.mark.parametrize("percent", [95, 80, 50])
@pytest.mark.parametrize("seed", SEEDS)
def test_fpr_equals_its_twin_and_scikit_learn_s_curve(seed, percent):
    inside, outside = scores(seed)
    found = fpr_at_tpr(inside, outside, percent / 100)
    assert found == close(scalar.fpr_at_tpr(inside, outside, percent))
    truth = [1] * len(inside) + [0] * len(outside)  # ID is the positive, by a low score
    fpr, tpr, _ = roc_curve(truth, [-s for s in inside + outside], drop_intermediate=False)
    assert found == close(fpr[tpr >= percent / 100 - 1e-12][0])


def test_higher_is_more_ood():
    low, high = [0.1, 0.2, 0.3], [0.7, 0.8]
    assert (auroc(low, high), aupr(low, high), fpr_at_tpr(low, high)) == (1, 1, 0)
    assert (auroc(high, low), fpr_at_tpr(high, low)) == (0, 1)
    assert auroc([1.0, 1.0], [1.0]) == 0.5


def test_detection_by_hand():
    inside, outside = [1.0, 2.0, 3.0, 4.0], [2.0, 5.0]
    assert auroc(inside, outside) == (1 + 0.5 + 4) / 8
    assert aupr(inside, outside) == close(0.5 * 1 + 0.5 * 2 / 5)
    assert fpr_at_tpr(inside, outside, 0.5) == 0.5  # the threshold is 2, and lets in its equal
    assert fpr_at_tpr(inside, outside, 0.25) == 0.0


def test_the_share_of_id_to_let_in_is_reached_and_not_passed():
    inside = [float(i) for i in range(20)]
    assert fpr_at_tpr(inside, [18.0, 18.5]) == 0.5  # 19 of 20 are 95 %: the threshold is 18
    assert fpr_at_tpr(inside, [18.0, 18.5], 0.96) == 1.0


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_tpr])
def test_detection_without_one_side_is_nan(metric):
    assert math.isnan(metric([], [1.0]))
    assert math.isnan(metric([1.0], []))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_auroc_turns_round_with_its_arguments_and_ignores_the_scale(inside, outside):
    assert auroc(inside, outside) + auroc(outside, inside) == close(1)
    shifted = auroc([math.exp(s) for s in inside], [math.exp(s) for s in outside])
    assert shifted == auroc(inside, outside) == close(scalar.auroc(inside, outside))


@pytest.mark.parametrize(("classes", "heads"), [(4, 4), (4, 7), (5, 2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_nmi_and_ari_equal_their_twins_and_scikit_learn(seed, classes, heads):
    labels, guesses = draw(seed, classes, heads)
    counts = contingency(labels, guesses, classes, heads)
    assert nmi(counts) == close(scalar.nmi(labels, guesses))
    assert nmi(counts) == close(normalized_mutual_info_score(labels, guesses))
    assert ari(counts) == close(scalar.ari(labels, guesses))
    assert ari(counts) == close(adjusted_rand_score(labels, guesses))


@pytest.mark.parametrize(
    ("labels", "heads"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0]),  # perfect
        ([0, 0, 0, 0], [0, 0, 0, 0]),  # one class, one cluster
        ([0, 0, 0, 0], [0, 1, 0, 1]),
        ([0, 1, 0, 1], [0, 0, 0, 0]),
        ([0, 1, 2, 3], [3, 2, 1, 0]),  # no two together
        ([0, 0, 1, 1], [0, 1, 0, 1]),  # independent: worse than chance
        ([0], [0]),
    ],
)
def test_nmi_and_ari_at_their_edges(labels, heads):
    counts = contingency(labels, heads, 4, 4)
    assert nmi(counts) == close(normalized_mutual_info_score(labels, heads), abs=1e-12)
    assert ari(counts) == close(adjusted_rand_score(labels, heads), abs=1e-12)
    assert ari(counts) == close(scalar.ari(labels, heads), abs=1e-12)


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4), st.lists(st.integers(1, 9), min_size=3))
def test_heads_that_say_nothing_of_the_class_share_no_information(rows, columns):
    counts = np.outer(rows, columns)
    assert 0 <= nmi(counts) < 1e-9  # never below 0, not even by rounding
    assert ari(counts) == close(adjusted_rand_score(*unroll(counts)), abs=1e-12)


def unroll(counts: np.ndarray) -> tuple[list[int], list[int]]:
    """Labels and heads with these counts."""
    cells = [(c, h) for (c, h), n in np.ndenumerate(counts) for _ in range(n)]
    return [c for c, _ in cells], [h for _, h in cells]


@pytest.mark.parametrize("seed", SEEDS)
def test_prototype_health_equals_its_twins(seed):
    random = np.random.default_rng(seed)
    usage = random.integers(0, 4, size=(4, 5))
    usage[2] = 0  # a class that nobody predicts
    prototypes, mixing = random.normal(size=(4, 5, 3)), random.random((4, 5))
    found = prototype_health(usage, prototypes, mixing)
    rows = usage.tolist()
    entropies = scalar.usage_entropies(rows)
    assert len(entropies) == 3
    assert found.usage_entropy == close(sum(entropies) / 3)
    assert found.effective == close(scalar.effective_slots(rows))
    assert found.dead == scalar.dead_slots(rows)
    assert found.slot_cosine == close(scalar.slot_cosine(prototypes.tolist()))
    assert found.mixing == close(mixing.sum() / 20)


def test_prototype_health_by_hand():
    usage = np.array([[4, 4, 0], [6, 0, 0], [0, 0, 0]])
    slots = [[[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]] * 3
    found = prototype_health(usage, slots, np.full((3, 3), 0.25))
    assert found.usage_entropy == close(math.log(2) / 2)
    assert found.effective == close(1.5)
    assert found.dead == 3
    assert found.slot_cosine == close(-1 / 3)
    assert found.mixing == 0.25


def test_one_slot_a_class_has_no_cosine_and_an_effective_v_of_1():
    found = prototype_health(np.array([[3], [5]]), np.ones((2, 1, 2)), np.zeros((2, 1)))
    assert (found.effective, found.dead) == (1, 0)
    assert math.isnan(found.slot_cosine)


@pytest.mark.parametrize(
    ("labels", "heads", "message"),
    [
        ([0, 1], [0], "1 predictions for 2 labels"),
        ([0, 3], [0, 0], r"A label lies outside 0 \.\.\. 2"),
        ([0, -1], [0, 0], r"A label lies outside 0 \.\.\. 2"),
        ([0, 0], [0, 4], r"A prediction lies outside 0 \.\.\. 3"),
    ],
)
def test_labels_and_heads_out_of_place_are_refused(labels, heads, message):
    with pytest.raises(InputError, match=message):
        contingency(labels, heads, 3, 4)


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_tpr])
def test_scores_that_are_not_there_are_refused(metric):
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        metric([float("nan"), 1.0], [2.0])


def test_edges_of_the_arguments_are_refused_or_nan():
    with pytest.raises(ValueError, match="tpr = 0"):
        fpr_at_tpr([0.0, 1.0], [0.5], 0.0)
    with pytest.raises(ValueError, match="whole number"):
        contingency([0.9, 1.2], [0, 1], 2, 2)
    assert math.isnan(nmi(np.zeros((2, 2), int)))


@pytest.mark.parametrize("seed", SEEDS)
def test_subclass_scores_equal_a_slow_twin(seed):
    """Class by class: scikit-learn's NMI, and the best of all ways to name the parts."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 4], [20, 30, 10])
    finer = 10 * labels + random.integers(3, size=60)
    parts = np.where(random.random(60) < 0.5, finer % 3, random.integers(4, size=60))
    score = subclass_score(labels, finer, parts)
    nmis, right = [], 0
    for label in (0, 1, 4):
        own = labels == label
        nmis.append(normalized_mutual_info_score(finer[own], parts[own]))
        fine = sorted(set(finer[own].tolist()))
        right += max(
            sum(
                naming[part] == true
                for true, part in zip(finer[own].tolist(), parts[own].tolist(), strict=True)
            )
            for naming in itertools.permutations([*fine, *[None] * (4 - len(fine))], 4)
        )
    assert score.nmi == close(np.mean(nmis))
    assert score.accuracy == close(right / 60)


def test_subclass_scores_know_perfect_and_useless_divisions():
    labels, finer = np.repeat([0, 1], 6), np.repeat([0, 1, 2, 3], 3)
    perfect = subclass_score(labels, finer, np.tile(np.repeat([1, 0], 3), 2))
    assert (perfect.nmi, perfect.accuracy) == (close(1), 1)
    useless = subclass_score(labels, finer, np.zeros(12, int))
    assert (useless.nmi, useless.accuracy) == (close(0, abs=1e-12), 0.5)
    nothing = np.empty(0, int)
    assert math.isnan(subclass_score(nothing, nothing, nothing).nmi)
