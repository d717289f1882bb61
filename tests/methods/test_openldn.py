"""OpenLDN: equality with its twins in both stages, and what novel classes choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from builders import (
    LABELS,
    NOVEL,
    SEEN,
    UNLABELED,
    Case,
    make_case,
    normal,
    output_of,
    rng,
    step_of,
)
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Sizes, Survey
from protofission.methods import Adam, OpenLDN, WithFission, openldn
from protofission.methods.openldn import Discovery
from protofission.methods.parts.inner_step import net_of
from reference import openldn as scalar
from reference.inner import outer
from reference.methods import Logits, Loss, with_fission
from reference.risks import softmax
from scalar_nets import scalar_net

close = pytest.approx
SIZES = Sizes(6, SEEN + NOVEL, SEEN)
CHOSEN = {2: SEEN, 5: SEEN + 1, 6: SEEN}
"""Three images of the pool, by place, with their classes."""


def options_of(method: OpenLDN, *names: str) -> dict[str, Any]:
    return {name: getattr(method, name) for name in names}


def first_loss(case: Case, method: OpenLDN, prefix: str = "") -> tuple[Any, Any]:
    scene = case.scene()
    net = scalar_net(case.memory.get_submodule(f"{prefix}net"))
    likeness = scalar.likeness_of(scene, net)
    options = options_of(
        method, "pair_weight", "entropy_weight", "unlabeled_weight", "base_threshold"
    )

    def loss(logits: Logits, slots: bool = False) -> Loss:
        return scalar.first_stage(scene, logits, likeness=likeness, **options)

    return scene, loss


def found_terms(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


FIRST = [
    {},
    {"base_threshold": 0.8, "unlabeled_weight": 0.3},
    {"pair_weight": 2.0, "entropy_weight": 0.4},
    {"inner_rate": 0.5, "net_width": 7},
]


@pytest.mark.parametrize("options", FIRST, ids=str)
def test_every_term_of_the_first_stage_equals_its_twin(options: dict[str, Any]) -> None:
    method = OpenLDN(**options)
    case = make_case(method, 1, progress=0.3)
    scene, loss = first_loss(case, method)
    head = case.head
    expected = loss(scene.max_logits) | {
        "outer": outer(scene, head.weight.tolist(), head.bias.tolist(), loss, method.inner_rate)
    }
    assert found_terms(case) == {k: close(v, rel=1e-9, abs=1e-12) for k, v in expected.items()}


SECOND = [
    {},
    {"sharpen_temperature": 1.5, "closed_threshold": 0.6},
    {"unlabeled_weight": 2.5, "closed_threshold": 0.99},
]


def in_second_stage(method: OpenLDN) -> Case:
    case = make_case(method, 1, progress=0.9)
    heads = torch.zeros(UNLABELED, dtype=torch.long)
    heads[list(CHOSEN)] = torch.tensor(list(CHOSEN.values()))
    case.memory.choose(torch.ones(UNLABELED), heads, UNLABELED)
    return case


@pytest.mark.parametrize("options", SECOND, ids=str)
def test_every_term_of_the_second_stage_equals_its_twin(options: dict[str, Any]) -> None:
    method = OpenLDN(**options)
    case = in_second_stage(method)
    scene = case.scene()
    names = "unlabeled_weight", "sharpen_temperature", "closed_threshold"
    expected = scalar.second_stage(
        scene, scene.max_logits, chosen=CHOSEN, **options_of(method, *names)
    ) | {"outer": 0.0}
    assert found_terms(case) == {k: close(v, rel=1e-9, abs=1e-12) for k, v in expected.items()}


@pytest.mark.parametrize("options", FIRST[:3], ids=str)
def test_fission_charges_it_to_every_slot(options: dict[str, Any]) -> None:
    base = OpenLDN(**options)
    case = make_case(WithFission(base, diversity_weight=0.5), 1, progress=0.3)
    scene, loss = first_loss(case, base, "base.")
    expected = with_fission(
        scene,
        loss,
        scalar.first_classes(scene, base.base_threshold),
        case.head.l.tolist(),
        num_seen=SEEN,
        remembered=[],
        diversity_weight=0.5,
    )
    found = found_terms(case)
    assert found.pop("outer") > 0
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


def test_the_cases_hold_all_kinds_of_images() -> None:
    """Or else equality with the twins would say little."""
    first = make_case(OpenLDN(base_threshold=0.8), 1, progress=0.3)
    targets = first.method.decide(first.step())
    assert 0 < targets.trusted.sum() < UNLABELED
    second = in_second_stage(OpenLDN(sharpen_temperature=1.5, closed_threshold=0.6))
    targets = second.method.decide(second.step())
    assert 0 < targets.trusted.sum() < UNLABELED - len(CHOSEN)


@pytest.mark.parametrize(
    ("share", "progress", "closed"), [(0.6, 0.59, False), (0.6, 0.6, True), (0, 0, True)]
)
def test_the_second_stage_begins_after_its_share(
    share: float, progress: float, closed: bool
) -> None:
    case = make_case(OpenLDN(base_share=share), progress=progress)
    assert case.method.decide(case.step()).closed is closed


def test_with_a_share_of_1_there_is_no_second_stage() -> None:
    case = make_case(OpenLDN(base_share=1), progress=0.9999)
    assert not case.method.decide(case.step()).closed


def test_images_are_not_chosen_before_the_second_stage() -> None:
    case = in_second_stage(OpenLDN(base_share=0.95))
    assert case.method.decide(case.step()).chosen.eq(NO_CLASS).all()


def test_chosen_images_count_as_labeled_ones_and_no_longer_as_pseudo_labeled() -> None:
    case = in_second_stage(OpenLDN(closed_threshold=0.01))
    targets = case.method.decide(case.step())
    assert dict(enumerate(targets.chosen.tolist())) == {
        u: CHOSEN.get(u, NO_CLASS) for u in range(UNLABELED)
    }
    assert targets.trusted.tolist() == [float(u not in CHOSEN) for u in range(UNLABELED)]
    assert targets.classes[case.rows("labeled", 0)].tolist() == list(LABELS)
    assert torch.equal(targets.classes[case.rows("unlabeled", 0)], targets.chosen)
    strong = targets.classes[case.rows("unlabeled", 1)]
    assert strong.eq(NO_CLASS).tolist() == [u in CHOSEN for u in range(UNLABELED)]


def test_chosen_images_are_found_by_their_places_in_the_pool() -> None:
    discovery = Discovery(SIZES, 3, rng(0))
    assert discovery.labels_of(torch.tensor([0, 7, 3])).eq(NO_CLASS).all()
    heads = torch.tensor([0, SEEN + 1, 1, SEEN, SEEN, 2])
    discovery.choose(torch.rand(6, generator=rng(0)), heads, 9)
    found = discovery.labels_of(torch.tensor([5, 4, 4, 1, 0, 3, 2, 99]))
    assert found.tolist() == [-1, SEEN, SEEN, SEEN + 1, -1, SEEN, -1, -1]
    discovery.choose(torch.rand(6, generator=rng(0)), torch.zeros(6, dtype=torch.long), 9)
    assert discovery.labels_of(torch.arange(6)).eq(NO_CLASS).all()


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("sizes", [[60], [1, 40, 19]])
def test_each_novel_class_chooses_the_images_that_are_surest_of_it(
    share: float, sizes: list[int]
) -> None:
    method, labels = OpenLDN(chosen_share=share), torch.zeros(40, dtype=torch.long)
    logits = 3 * normal(60, 5)
    logits[50:] = logits[:10]  # images that tie
    memory = method.memory(SIZES, rng(0))
    method.survey(memory, Survey([], labels, [output_of(z) for z in logits.split(sizes)]))
    probs = [softmax(z) for z in logits.tolist()]
    heads = [p.index(max(p)) for p in probs]
    expected = scalar.chosen_images(
        logits.softmax(-1).amax(-1).tolist(), heads, SEEN, int(share * 100 / 5)
    )
    found = memory.labels_of(torch.arange(60)).tolist()
    assert {place: c for place, c in enumerate(found) if c != NO_CLASS} == expected


def test_no_class_chooses_more_images_than_there_is_room_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(openldn, "MOST_CHOSEN", 2)
    discovery = Discovery(SIZES, 3, rng(0))
    discovery.choose(torch.arange(10).double(), torch.full((10,), SEEN), 5)
    assert discovery.labels_of(torch.arange(10)).ne(NO_CLASS).nonzero()[:, 0].tolist() == [8, 9]


def test_without_novel_classes_nothing_is_chosen() -> None:
    discovery = Discovery(Sizes(6, SEEN, SEEN), 3, rng(0))
    discovery.choose(torch.ones(4), torch.tensor([0, 1, 2, 0]), 5)
    assert discovery.labels_of(torch.arange(4)).eq(NO_CLASS).all()


def test_the_pairwise_loss_is_none_where_likeness_is_right() -> None:
    """Images that are each sure of a head: cosines of 0 and 1."""
    method = OpenLDN()
    heads = torch.tensor([0, 0, 1, 0, 1])  # a labeled image, two weak views, two strong ones
    logits = 60 * torch.nn.functional.one_hot(heads, 5).float()
    step = step_of(method, output_of(logits, normal(5, 6).float()), [0], 2)
    targets = method.decide(step)
    alike = (heads[:3, None] == heads[:3]).float()
    for likeness, expected in ((alike, 0.0), (1 - alike, 1.0), (0.5 + 0 * alike, 0.25)):
        terms = method.risk(step, replace(targets, likeness=likeness), logits)
        assert terms[2].value.item() == close(expected, abs=1e-12)


def test_the_net_is_made_and_taught_as_the_options_say() -> None:
    assert OpenLDN(net_rate=0.3).traits.memory_optimizer == Adam(0.3)
    assert OpenLDN().traits.memory_optimizer == Adam(1e-4)
    assert net_of(OpenLDN(net_width=9).memory(SIZES, rng(0))).hidden.shape == (9, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_threshold": 0}, r"^base_threshold = 0 must be above 0, at most 1\.$"),
        ({"closed_threshold": 1.1}, r"^closed_threshold = 1.1 must be above 0, at most 1\.$"),
        ({"base_share": -0.1}, r"^base_share = -0.1 must be between 0 and 1\.$"),
        ({"chosen_share": 2}, r"^chosen_share = 2 must be between 0 and 1\.$"),
        ({"sharpen_temperature": 0}, r"^sharpen_temperature = 0 must be above 0\.$"),
        ({"inner_rate": 0}, r"^inner_rate = 0 must be above 0\.$"),
        ({"net_rate": 0}, r"^net_rate = 0 must be above 0\.$"),
        ({"net_width": 0}, r"^net_width = 0 must be at least 1\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OpenLDN(**options)
