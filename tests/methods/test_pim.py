"""PIM: the weighted mutual information, and the search of its weight by the labels."""

from __future__ import annotations

import math

import pytest
import torch

from builders import LABELS, SEEN, UNLABELED, Case, make_case, normal, output_of, rng, step_of
from protofission.core.errors import InputError
from protofission.core.kmeans import SPHERE, cluster_rows
from protofission.core.records import NO_CLASS, Sizes, Survey
from protofission.methods import Pim, WithFission
from protofission.methods.pim import CANDIDATES
from reference import pim as scalar

close = pytest.approx


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


@pytest.mark.parametrize("weight", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin(weight, seed):
    case = make_case(Pim(conditional_weight=weight), seed)
    scene = case.scene()
    expected = scalar.pim(scene, scene.max_logits, weight)
    assert terms_of(case) == close(expected, rel=1e-6, abs=1e-12)  # the weight is a float32


def test_with_fission_the_max_logits_and_every_slot_are_charged_alike():
    case = make_case(WithFission(Pim(conditional_weight=0.5)), 1)
    scene, found = case.scene(), terms_of(case)
    for name, value in scalar.pim(scene, scene.max_logits, 0.5).items():
        assert found[name] == close(value, rel=1e-9)
    slots = [
        sum(scalar.pim(scene, scene.slot_logits(slot), 0.5).values()) for slot in range(scene.slots)
    ]
    assert found["consistency"] == close(0.6 * sum(slots) / len(slots), rel=1e-9)


def test_sure_and_even_predictions_have_all_the_information_there_is():
    """The loss is then -log C, and the cross entropy 0."""
    sims = 50 * torch.eye(4, dtype=torch.float64)
    method = Pim(conditional_weight=0.7)
    step = step_of(method, output_of(sims), [0, 1], 2)
    terms = {t.name: t.value.item() for t in method.terms(step)}
    assert terms["conditional"] == close(0, abs=1e-12)
    assert terms["marginal"] == close(-math.log(4))
    assert terms["supervised"] == close(0, abs=1e-12)


def test_the_pool_alone_is_made_sure_and_all_images_are_used_evenly():
    case = make_case(Pim(conditional_weight=1.0))
    step = case.step()
    terms = {t.name: t.value for t in case.method.terms(step)}
    for name, rows in (
        ("conditional", case.rows("unlabeled", 0)),
        ("supervised", case.rows("labeled", 0)),
        ("marginal", range(len(LABELS) + UNLABELED)),
    ):
        (gradient,) = torch.autograd.grad(terms[name], step.output.nearest, retain_graph=True)
        moved = (gradient.norm(dim=-1) > 1e-12).nonzero()[:, 0].tolist()
        assert moved == list(rows), name


def test_hard_classes_are_labels_and_sure_predictions():
    case = make_case(Pim(conditional_weight=1.0, hard_threshold=0.9))
    classes = case.method.decide(case.step()).classes
    assert classes[case.rows("labeled", 0)].tolist() == list(LABELS)
    rows = case.rows("unlabeled", 0)
    probs = case.step().logits.softmax(-1)[rows]
    assert classes[rows].tolist() == [
        p.argmax().item() if p.max() >= 0.9 else NO_CLASS for p in probs
    ]


def clusters(sizes: list[int], noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions around the axes, and the axis of each."""
    axes = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rows = torch.eye(8, dtype=torch.float64)[axes] + noise * normal(sum(sizes), 8, seed=seed)
    return rows, axes


def surveyed(method: Pim, rows: torch.Tensor, axes: torch.Tensor, labeled: torch.Tensor) -> float:
    memory = method.memory(Sizes(8, 4, 2), rng(3))
    chunks = [output_of(normal(len(part), 4), part) for part in rows[labeled].split(9)]
    pool = [output_of(normal(len(part), 4), part) for part in rows[~labeled].split(13)]
    method.survey(memory, Survey(chunks, axes[labeled], pool))
    return float(memory.conditional)


def test_the_search_is_done_once_and_repeats_itself():
    rows, axes = clusters([40, 40, 40, 40], 0.3)
    labeled = (torch.arange(160) % 2 == 0) & (axes < 2)
    method = Pim(search_steps=20)
    found = surveyed(method, rows, axes, labeled)
    assert found in [close(c) for c in CANDIDATES]
    assert surveyed(method, rows, axes, labeled) == found
    memory = method.memory(Sizes(8, 4, 2), rng(3))
    memory.searched.fill_(True)
    memory.conditional.fill_(0.123)
    method.survey(memory, Survey(iter(()), axes[labeled], iter(())))
    assert float(memory.conditional) == close(0.123)


def test_the_search_takes_the_first_candidate_whose_clusters_fit_the_labels_best():
    """Each candidate alone, step by step, against the search of all at once."""
    rows, axes = clusters([60, 20, 10, 50], 0.55, seed=4)
    rows = torch.nn.functional.normalize(rows, dim=-1)
    order = torch.cat([torch.arange(0, 80, 2), torch.arange(1, 80, 2), torch.arange(80, 140)])
    rows, labels = rows[order], axes[order][:40]
    method = Pim(search_steps=15, search_rate=0.1)
    found = method.search(rows, labels, 4, rng(1))

    free = torch.full((len(rows),), NO_CLASS)
    centers = cluster_rows(rows, free, rows[:0], 4, rng(1), SPHERE).centers
    right = []
    for weight in CANDIDATES:
        learned = centers.clone().requires_grad_()
        optimizer = torch.optim.Adam([learned], lr=0.1)
        for _ in range(15):
            units = torch.nn.functional.normalize(learned, dim=-1)
            probs = (25 * rows @ units.T).softmax(-1)
            pool = -(probs[40:] * probs[40:].log()).sum(-1).mean()
            use = probs.mean(0)
            loss = weight * pool + (use * use.log()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        units = torch.nn.functional.normalize(learned.detach(), dim=-1)
        taken = (rows[:40] @ units.T).argmax(-1).tolist()
        right.append(scalar.best_match(labels.tolist(), taken, 4))
    assert len(set(right)) > 1  # or else any candidate would do
    assert found == CANDIDATES[right.index(max(right))]


def test_a_given_weight_wants_no_survey():
    assert Pim().traits.survey_before_epoch
    assert not Pim(conditional_weight=0.5).traits.survey_before_epoch
    assert float(Pim(conditional_weight=0.25).memory(Sizes(6, 5, SEEN), rng(0)).conditional) == 0.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditional_weight": -1.0}, r"^conditional_weight = -1.0 must be at least 0\.$"),
        ({"search_rows": 0}, r"^search_rows = 0 must be at least 1\.$"),
        ({"search_steps": 0}, r"^search_steps = 0 must be at least 1\.$"),
        ({"search_rate": 0.0}, r"^search_rate = 0.0 must be above 0\.$"),
        ({"search_temperature": 0.0}, r"^search_temperature = 0.0 must be above 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Pim(**options)
