"""OpenCon: three contrasts, and prototypes that are running means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, UNLABELED, WIDTH, Case, make_case, normal, rng
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, total
from protofission.methods import OpenCon, Orca, WithFission
from protofission.models.heads import HeadSpec
from protofission.models.heads.averaged import AveragedHead
from protofission.models.start_from_data import start_from_data
from protofission.training.loop import train
from protofission.training.state import start
from reference import opencon as scalar
from reference.methods import Scene
from reference.prototypes import cosine, dot, unit
from runs import digits, small

close = pytest.approx


def scene_of(case: Case) -> Scene:
    output = case.step().output
    return Scene(
        features=dict(zip(case.keys, output.features.tolist(), strict=True)),
        sims=dict(zip(case.keys, output.similarities.tolist(), strict=True)),
        labels=list(LABELS),
        unlabeled=UNLABELED,
        temperature=output.temperature,
    )


def novel_of(case: Case) -> list[int | None]:
    method = case.method
    return scalar.novel_classes(scene_of(case), SEEN, method.novel_below, method.novel_among)


def twin(case: Case) -> dict[str, float]:
    scene, options = scene_of(case), asdict(case.method)
    for name in ("novel_below", "novel_among", "momentum"):
        options.pop(name)
    return scalar.loss(scene, scene.max_logits, novel_of(case), progress=case.progress, **options)


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


MANY = {"novel_below": 0.9, "novel_among": "novel"}
"""So that many images of the small batch are taken for novel."""
OPTIONS: list[dict[str, Any]] = [
    {},
    {"views_weight": 0.5},
    {"views_temperature": 0.1},
    {"labels_weight": 1.0},
    {"labels_temperature": 0.3},
    {"novel_weight": 2.0},
    {"novel_temperature": 0.2},
    {"novel_ramp": 1.0},
    {"novel_ramp": 0.0},
    {"novel_below": 0.4},
    {"novel_among": "all"},
    {"entropy_weight": 1.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin_under_every_option(options, seed):
    case = make_case(OpenCon(**{**MANY, **options}), seed, progress=0.3)
    found = terms_of(case)
    assert found == close(twin(case), rel=1e-9, abs=1e-12)
    if options:
        assert found != close(terms_of(make_case(OpenCon(**MANY), seed, progress=0.3)), rel=1e-6)


@pytest.mark.parametrize("among", ["novel", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_novel_images_and_their_classes_equal_their_twin(among, seed):
    case = make_case(OpenCon(novel_below=0.6, novel_among=among), seed)
    targets = case.method.decide(case.step())
    found = [None if c == NO_CLASS else c for c in targets.novel.tolist()]
    assert found == novel_of(case)
    for view in range(2):
        assert targets.classes[case.rows("labeled", view)].tolist() == list(LABELS)
        assert torch.equal(targets.classes[case.rows("unlabeled", view)], targets.novel)


def test_no_image_is_novel_below_the_farthest_label_unless_it_is_farther():
    case = make_case(OpenCon(novel_below=0.0))
    step = case.step()
    near = step.output.nearest[:, :SEEN].amax(-1)
    farther = step.unlabeled(near) < step.labeled(near).min()
    assert torch.equal(case.method.decide(step).novel != NO_CLASS, farther)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 1.0])
def test_prototypes_move_as_their_twin_s(momentum):
    case = make_case(OpenCon(**MANY, momentum=momentum), 1)
    step = case.step()
    targets = case.method.decide(step)
    novel = [None if c == NO_CLASS else c for c in targets.novel.tolist()]
    before = case.head.get_buffer("means").tolist()
    vectors = step.both(step.output.features, 0).tolist()
    expected = scalar.moved(before, vectors, [*LABELS, *novel], momentum)
    case.method.update(step, targets)
    for row, wanted in zip(case.head.get_buffer("means").tolist(), expected, strict=True):
        assert row == close(wanted, rel=1e-9)


def test_a_prototype_without_an_image_stays_and_one_of_many_goes_to_their_mean():
    case = make_case(OpenCon(novel_below=0.0, momentum=0.0))
    step = case.step()
    targets = case.method.decide(step)
    targets.novel.fill_(NO_CLASS)
    means = case.head.get_buffer("means")
    before = means.clone()
    case.method.update(step, targets)
    assert torch.equal(means[SEEN:], before[SEEN:])
    zeros = [i for i, label in enumerate(LABELS) if label == 0]
    mean = step.labeled(step.output.features)[zeros].mean(0)
    assert_close(means[0], mean / mean.norm())


def test_no_gradient_reaches_the_prototypes_but_the_projection_learns():
    case = make_case(OpenCon())
    total(case.method.terms(case.step())).backward()
    assert not case.head.get_buffer("means").requires_grad
    assert "means" in case.head.state_dict()
    assert all(p.grad.norm() > 0 for p in case.head.parameters())


def test_the_head_compares_the_projection_with_its_means():
    head = AveragedHead(WIDTH, 5, generator=rng(0)).double()
    row = normal(1, WIDTH)
    own = head.projection
    layer = zip(own.hidden.tolist(), own.hidden_bias.tolist(), strict=True)
    hidden = [max(dot(row[0].tolist(), w) + b, 0.0) for w, b in layer]
    projected = [dot(hidden, w) for w in own.weight.tolist()]
    output = head(row)
    assert output.features[0].tolist() == close(unit(projected))
    assert output.nearest[0].tolist() == close([cosine(projected, m) for m in head.means.tolist()])
    assert_close(output.logits, 10 * output.nearest)


def test_the_head_may_start_from_the_data():
    head = AveragedHead(WIDTH, 4, generator=rng(0))
    labels = torch.tensor([0, 0, 1, 1])
    rows = torch.nn.functional.normalize(torch.randn(14, WIDTH, generator=rng(1)), dim=-1)
    start_from_data(head, rows[:4], labels, rows[4:], 2, 0)
    mean = rows[:2].mean(0)
    assert_close(head.means[0], mean / mean.norm())
    assert_close(head.means.norm(dim=-1), torch.ones(4))


def test_what_lies_far_from_seen_prototypes_is_more_ood():
    case = make_case(OpenCon())
    output = case.step().output
    score = case.method.ood_score(output, case.memory, SEEN)
    assert_close(score, -output.nearest[:, :SEEN].amax(-1))


def test_training_moves_the_prototypes_that_are_judged():
    experiment, data = small("opencon"), digits()
    state = start(experiment, data.training, data.augmentations)
    before = state.model.head.get_buffer("means").clone()
    for _ in train(state, experiment, data.training, data.augmentations):
        pass
    after = state.for_evaluation.model.head.get_buffer("means")
    assert (before * after).sum(-1)[: data.training.num_seen].max() < 0.99
    assert_close(after.norm(dim=-1), torch.ones(len(after)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OpenCon(novel_below=1.5), r"^novel_below = 1.5 must be between 0 and 1\.$"),
        (lambda: OpenCon(momentum=-1.0), r"^momentum = -1.0 must be between 0 and 1\.$"),
        (lambda: OpenCon(novel_ramp=-1.0), r"^novel_ramp = -1.0 must be between 0 and 1\.$"),
        (lambda: OpenCon(labels_weight=-1.0), r"^labels_weight = -1.0 must be at least 0\.$"),
        (lambda: OpenCon().check(HeadSpec("cosine")), r"^head.kind = cosine does not fit"),
        (lambda: Orca().check(HeadSpec("averaged")), r"^head.kind = averaged does not fit"),
        (lambda: WithFission(OpenCon()).check(HeadSpec()), r"^head.kind = fission does not fit"),
    ],
)
def test_bad_options_and_heads_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()
