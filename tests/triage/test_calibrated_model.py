"""What a fitted model says, against a scalar twin and at its threshold."""

import math

import pytest
import torch

from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.models.adapters import AdapterSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.triage.calibrated_model import (
    ACCEPT,
    NOVEL,
    REJECT,
    SingleModel,
    Verdicts,
    subclass_use,
)


def calibrated_model(
    kind="fission", known=3, novel=0, temperature=1.0, threshold=-math.inf, seed=0
):
    generator = torch.Generator().manual_seed(seed)
    adapter = AdapterSpec("linear", width=6).build(8, generator)
    head = HeadSpec(kind, prototypes=4).build(6, known + novel, known, generator)
    return SingleModel(Model(adapter, head), known, temperature, threshold)


def rows(count=20):
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["linear", "cosine", "fission"])
@pytest.mark.parametrize("novel", [0, 2])
def test_verdicts_are_those_of_a_slow_twin(kind, novel):
    found = calibrated_model(kind, novel=novel, temperature=2.5, threshold=0.3)
    with torch.no_grad():
        verdicts, output = found(rows()), found.model(rows())
    logits, similarities = output.logits.tolist(), output.similarities.tolist()
    for row in range(20):
        known, strange = logits[row][:3], logits[row][3:]
        best = max(range(3), key=known.__getitem__)
        score = known[best] - (max(strange) if strange else 0)
        total = sum(math.exp(value / 2.5) for value in known)
        assert verdicts.classes[row] == best
        assert verdicts.id_scores[row].item() == pytest.approx(score, abs=1e-5)
        assert verdicts.probs[row].tolist() == pytest.approx(
            [math.exp(value / 2.5) / total for value in known], abs=1e-5
        )
        own = similarities[row][best]
        assert verdicts.subclasses[row] == max(range(len(own)), key=own.__getitem__)
        if score >= 0.3:
            assert (verdicts.decisions[row], verdicts.clusters[row]) == (ACCEPT, NO_CLASS)
        elif novel:
            nearest = max(range(2), key=strange.__getitem__)
            assert (verdicts.decisions[row], verdicts.clusters[row]) == (NOVEL, nearest)
        else:
            assert (verdicts.decisions[row], verdicts.clusters[row]) == (REJECT, NO_CLASS)
    assert len(set(verdicts.decisions.tolist())) == 2, "both sides of the threshold are tried"


def test_an_image_at_the_threshold_is_accepted_and_one_just_below_is_not():
    scores = calibrated_model()(rows()).id_scores
    at = float(scores[4])
    decided = calibrated_model(threshold=at)(rows()).decisions
    assert decided[4] == ACCEPT
    assert torch.equal(decided == ACCEPT, scores >= at)
    above = calibrated_model(threshold=math.nextafter(at, math.inf) + 1e-6)(rows()).decisions
    assert above[4] == REJECT


def test_the_temperature_changes_probabilities_and_nothing_else():
    cold, warm = calibrated_model(temperature=0.5)(rows()), calibrated_model(temperature=4)(rows())
    assert not torch.allclose(cold.probs, warm.probs)
    for name in ("classes", "subclasses", "id_scores", "decisions", "clusters"):
        assert torch.equal(getattr(cold, name), getattr(warm, name))


def test_its_weights_are_not_trained():
    assert not any(parameter.requires_grad for parameter in calibrated_model().parameters())


def test_sizes_are_those_of_its_head():
    assert calibrated_model("fission").subclass_counts == (4, 4, 4)
    assert calibrated_model("cosine").subclass_counts == (1, 1, 1)
    assert (calibrated_model().inputs, calibrated_model().num_clusters) == (8, 0)
    assert calibrated_model(novel=2).num_clusters == 2


def test_choices_are_the_largest_affinities_and_ranges_hold_the_score():
    found = calibrated_model(novel=2, threshold=0.3)
    verdicts, affinities = found(rows()), found.affinities(rows())
    own = affinities.subclasses[torch.arange(20), verdicts.classes]
    assert torch.equal(own.argmax(1), verdicts.subclasses)
    novel = verdicts.decisions == NOVEL
    assert torch.equal(affinities.clusters.argmax(1)[novel], verdicts.clusters[novel])
    low, high = found.id_score_range(rows(), 0.01)
    size = verdicts.id_scores.abs().clamp_min(1)
    assert torch.allclose(verdicts.id_scores - low, 0.01 * size, atol=1e-6)
    assert torch.allclose(high - verdicts.id_scores, 0.01 * size, atol=1e-6)


def test_sub_classes_in_use_are_counted_over_accepted_images():
    nothing = torch.zeros(5)
    verdicts = Verdicts(
        probs=nothing,
        classes=torch.tensor([0, 2, 2, 2, 1]),
        subclasses=torch.tensor([3, 1, 1, 0, 2]),
        id_scores=nothing,
        decisions=torch.tensor([ACCEPT, ACCEPT, ACCEPT, ACCEPT, REJECT]),
        clusters=nothing,
    )
    use = subclass_use(calibrated_model(), verdicts)
    assert use.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 2, 0, 0]]


def test_a_temperature_of_nothing_is_refused():
    with pytest.raises(InputError, match="temperature = 0"):
        calibrated_model(temperature=0)


def test_heads_that_only_make_room_reject_what_they_take():
    named = calibrated_model(novel=2, threshold=0.3)
    room = SingleModel(named.model, 3, threshold=0.3, clusters=False)
    one, two = named(rows()), room(rows())
    assert torch.equal(one.id_scores, two.id_scores)
    assert torch.equal(one.decisions == NOVEL, two.decisions == REJECT)
    assert set(two.clusters.tolist()) == {NO_CLASS}
