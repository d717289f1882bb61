"""DTC: features that labels shape, then clusters that sharpen themselves, named by the labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import NOVEL, SEEN, Case, make_case, normal, output_of, rng, step_of
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, total
from protofission.methods import DTC, WithFission
from protofission.methods.dtc import sharpen
from protofission.methods.parts.ramps import gaussian_ramp
from protofission.models.heads import HeadSpec
from protofission.models.heads.student import StudentHead
from protofission.models.start_from_data import start_from_data
from protofission.training.presets import preset
from reference import dtc as scalar
from reference.methods import Logits, Loss, with_fission

close = pytest.approx
CLASSES = SEEN + NOVEL


def weighted(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def twin(case: Case, base: DTC) -> Loss:
    scene, memory = case.scene(), case.memory
    prefix = "" if case.method is base else "base."
    layer = memory.get_submodule(f"{prefix}classifier")

    stage = {"progress": case.progress, "transfer_share": base.transfer_share}

    def loss(logits: Logits, slots: bool = False) -> Loss:
        options = {"view_weight": base.view_weight, "ramp": base.ramp}
        return scalar.dtc(scene, logits, **stage, **options)

    known = scalar.transfer(scene, layer.weight.tolist(), layer.bias.tolist(), **stage)
    transfer = {"transfer": known}
    if case.method is base:
        return {**loss(scene.max_logits), **transfer}
    options = {
        name: getattr(case.method, name)
        for name in ("consistency_weight", "diversity_weight", "assign_temperature")
    }
    classes = scalar.dtc_classes(scene, hard_threshold=base.hard_threshold, **stage)
    local = case.head.l.tolist()
    found = with_fission(scene, loss, classes, local, num_seen=SEEN, remembered=[], **options)
    return {**found, **transfer}


OPTIONS = [
    {},
    {"view_weight": 2.0, "ramp": 0.9},
    {"transfer_share": 0.15, "ramp": 0.0},
    {"transfer_share": 0.0},
    {"hard_threshold": 0.4},
]
STAGES = (0.2, 0.51)
"""The first stage, where `transfer_share` is 0.5, and the second while the views rise."""


@pytest.mark.parametrize("progress", STAGES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin(options: dict[str, float], seed: int, progress: float) -> None:
    case = make_case(DTC(**options), seed, progress=progress)
    expected = twin(case, case.method)
    assert weighted(case) == {name: close(value, rel=1e-9) for name, value in expected.items()}


@pytest.mark.parametrize("progress", STAGES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_carries_over_to_fission(options: dict[str, float], progress: float) -> None:
    base = DTC(**options)
    case = make_case(WithFission(base, diversity_weight=0.5), 1, progress=progress)
    expected = twin(case, base)
    assert weighted(case) == {name: close(value, rel=1e-9) for name, value in expected.items()}


def test_the_aim_by_hand() -> None:
    """Shares of 0.5 and 0.5: squares alone count. Of 0.8 and 0.2: the small cluster is spared."""
    even = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)
    assert sharpen(even)[0].tolist() == close([0.81 / 0.82, 0.01 / 0.82])
    uneven = torch.tensor([[0.9, 0.1], [0.7, 0.3]], dtype=torch.float64)
    expected = [0.49 / 0.8, 0.09 / 0.2]
    assert sharpen(uneven)[1].tolist() == close([e / sum(expected) for e in expected])


@pytest.mark.parametrize("seed", range(3))
def test_aims_are_surer_than_clusters_and_use_them_more_evenly(seed: int) -> None:
    probs = (normal(400, 5, seed=seed) + 0.5 * normal(5, seed=seed + 9)).softmax(-1)
    aims = sharpen(probs)
    assert aims.sum(1).tolist() == close([1.0] * 400)
    assert aims.amax(1).mean() > probs.amax(1).mean()
    assert aims.mean(0).std() < probs.mean(0).std()


def test_an_empty_cluster_leaves_the_aims_finite() -> None:
    found = sharpen(torch.tensor([[0.5, 0.5, 0.0]]))
    assert found[0].tolist() == close([0.5, 0.5, 0.0])


def test_the_ramp_by_hand() -> None:
    assert gaussian_ramp(0.0, 0.5) == close(math.exp(-5))
    assert gaussian_ramp(0.25, 0.5) == close(math.exp(-1.25))
    assert gaussian_ramp(0.5, 0.5) == gaussian_ramp(0.9, 0.5) == gaussian_ramp(0.0, 0.0) == 1


def test_a_cluster_that_is_where_it_aims_costs_nothing() -> None:
    """An even q aims at itself."""
    step = step_of(DTC(), output_of(torch.zeros(8, CLASSES)), [0, 1], 2)
    clusters, views = DTC().risk(step, DTC().decide(step), step.logits)
    assert clusters.value.item() == close(0, abs=1e-7)
    assert views.value.item() == close(0, abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("method", [DTC, lambda **options: WithFission(DTC(**options))])
def test_the_stages_meet_where_the_head_begins(method: Any, share: float) -> None:
    whole = method(transfer_share=share)
    assert whole.traits.head_starts_at == share
    for progress in (math.nextafter(share, 0), share, math.nextafter(share, 1)):
        if progress < 0 or progress >= 1:
            continue
        found = weighted(make_case(whole, progress=progress))
        assert (found["transfer"] > 0) == (progress < share)
        assert (found["clusters"] > 0) == (found["views"] > 0) == (progress >= share)


def test_the_views_rise_within_the_second_stage() -> None:
    """Half a ramp of 0.2 of the second half is 0.55 of training."""
    rises = {
        progress: DTC(ramp=0.2).decide(make_case(DTC(), progress=progress).step()).ramp
        for progress in (0.5, 0.55, 0.6, 0.9)
    }
    assert rises == {
        progress: close(value)
        for progress, value in {0.5: math.exp(-5), 0.55: math.exp(-1.25), 0.6: 1, 0.9: 1}.items()
    }


def test_labels_name_no_cluster() -> None:
    """In the second stage other labels change nothing; L_div divides clusters, not labels."""
    case = make_case(DTC(hard_threshold=0.3))
    step = case.step()
    targets = case.method.decide(step)
    probs = step.logits.softmax(-1)
    hard = torch.where(probs.amax(1) >= 0.3, probs.argmax(1), NO_CLASS)
    assert torch.equal(targets.classes, hard)
    assert (hard != NO_CLASS).any()
    assert (hard == NO_CLASS).any()
    assert weighted(case) == with_other_labels(case)


def with_other_labels(case: Case) -> dict[str, float]:
    step = case.step()
    shifted = replace(step, labels=(step.labels + 1) % SEEN)
    return {t.name: t.weight * t.value.item() for t in case.method.terms(shifted)}


def test_the_first_stage_is_the_labels_alone() -> None:
    """No row has a cluster, however sure, and the head learns nothing."""
    case = make_case(DTC(hard_threshold=0.01), progress=0.2)
    step = case.step()
    assert (case.method.decide(step).classes == NO_CLASS).all()
    before, after = weighted(case), with_other_labels(case)
    assert {name for name in before if before[name] != after[name]} == {"transfer"}
    total(case.method.terms(step)).backward()
    assert all(p.grad is None for p in case.head.parameters())


def test_the_second_stage_leaves_the_classifier_alone() -> None:
    case = make_case(DTC())
    total(case.method.terms(case.step())).backward()
    assert all(p.grad is None for p in case.memory.parameters())
    assert all(p.grad.norm() > 0 for p in case.head.parameters())


def test_the_transfer_teaches_the_first_view_of_labeled_images_and_the_classifier() -> None:
    case = make_case(DTC(), progress=0.2)
    total(case.method.terms(case.step())).backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert moved.nonzero()[:, 0].tolist() == case.rows("labeled", 0)
    assert all(p.grad.norm() > 0 for p in case.memory.parameters())
    assert case.memory.classifier.weight.shape == (SEEN, case.features.shape[1])


def test_the_softmax_of_the_head_is_students_t() -> None:
    head = StudentHead(4, 3, rng(0)).double()
    rows = 2 * normal(5, 4)
    far = (rows @ head.axes.T)[:, None] - head.centres
    kernel = 1 / (1 + far.square().sum(-1))
    output = head(rows)
    assert_close(output.logits.softmax(-1), kernel / kernel.sum(1, keepdim=True))
    assert output.similarities.shape == (5, 3, 1)
    assert output.prototypes.combined.shape == (3, 1, 4)
    assert StudentHead(2, 7, rng(0))(torch.ones(1, 2)).logits.shape == (1, 7)


def blobs(number: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of four classes in eight dimensions, far from 0."""
    classes = torch.arange(4).repeat_interleave(number)
    return 5 + 3 * torch.eye(8)[classes] + 0.1 * normal(4 * number, 8).float(), classes


@pytest.mark.parametrize("seed", range(3))
def test_the_start_finds_the_clusters_of_labeled_and_pool(seed: int) -> None:
    rows, classes = blobs()
    head = HeadSpec("student", init="data").build(8, 4, 2, rng(seed))
    known = classes < 2
    start_from_data(head, rows[known], classes[known], rows[~known], 2, seed)
    output = head(rows)
    found = output.logits.argmax(1)
    assert len({(int(a), int(b)) for a, b in zip(found, classes, strict=True)}) == 4
    assert output.logits.softmax(-1).amax(1).min() > 0.9
    mapped = rows @ head.axes.T
    own = (mapped - head.centres[found]).square().sum(1).mean()
    assert own.item() == close(1, rel=1e-3)


def test_a_start_from_rows_that_are_all_the_same_is_finite() -> None:
    head = HeadSpec("student", init="data").build(3, 4, 2, rng(0))
    same = torch.ones(6, 3)
    start_from_data(head, same[:2], torch.tensor([0, 1]), same, 2, 0)
    assert all(p.isfinite().all() for p in head.parameters())


def test_it_is_matched_and_starts_from_data_on_every_tier() -> None:
    for name in ("digits", "features/cifar10", "paper/cifar10"):
        experiment = preset(name, "dtc")
        experiment.check()
        assert (experiment.head.kind, experiment.head.init) == ("student", "data")
        preset(name, "dtc+pf").check()
    assert DTC().traits.novel == WithFission(DTC()).traits.novel == "match"
    assert DTC().traits.has_novel_heads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view_weight": -1}, r"^view_weight = -1 must be at least 0\.$"),
        ({"transfer_share": 1}, r"^transfer_share = 1 must be at least 0 and below 1\.$"),
        ({"transfer_share": -0.1}, r"^transfer_share = -0.1 must be at least 0 and below 1\.$"),
        ({"ramp": 1.5}, r"^ramp = 1.5 must be between 0 and 1\.$"),
        ({"hard_threshold": 0}, r"^hard_threshold = 0 must be above 0, at most 1\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DTC(**options)
