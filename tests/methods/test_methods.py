"""All methods: one contract, equality with scalar twins, and what each decides."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

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
from protofission.core.options import override
from protofission.core.records import NO_CLASS, Sizes, Survey, Targets, Term, total
from protofission.methods import (
    METHODS,
    FixMatch,
    FixMatchSigmoid,
    Method,
    Orca,
    SimCLR,
    Supervised,
    WithFission,
)
from protofission.methods.orca import class_partners, nearest_partners, pair_loss
from protofission.methods.parts.contrast import nt_xent
from protofission.methods.parts.entropy import negative_entropy, unevenness
from protofission.training.experiment import experiment_of
from reference import methods as scalar
from reference.risks import softmax

close = pytest.approx
NAMES = list(METHODS)
TWINS = [
    name
    for name in NAMES
    if type(getattr(METHODS[name], "base", METHODS[name]))
    in (Supervised, FixMatch, FixMatchSigmoid, Orca, SimCLR)
]
"""The methods whose twins are in reference/methods.py; each other one has a file of its own."""


def leaves(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t.clone().requires_grad_() for t in tensors)


@dataclass(frozen=True)
class Tiny(Supervised):
    """A method of somebody else, with names that end as some of ours do."""

    dropout_rate: float = 0.0
    prior_weight: float | None = None
    class_weight: tuple[float, ...] = (1.0, 2.0)
    last_temperature: float | None = None


def test_an_option_may_be_called_as_it_likes():
    tiny = experiment_of("supervised", method=Tiny())
    for key, text, value in (
        ("dropout_rate", "0.5", 0.5),
        ("prior_weight", "2", 2.0),
        ("prior_weight", "none", None),
        ("class_weight", "3,4", (3.0, 4.0)),
    ):
        assert getattr(override(tiny, f"method.{key}={text}").method, key) == value
    for text, words in (("prior_weight=-1", "at least 0"), ("last_temperature=0", "above 0")):
        with pytest.raises(InputError, match=f"{text}.0 must be {words}".replace("=", " = ")):
            override(tiny, f"method.{text}")


def base_of(method: Method[Any]) -> Method[Any]:
    return method.base if isinstance(method, WithFission) else method


def options_of(method: Method[Any]) -> dict[str, Any]:
    return {f.name: getattr(method, f.name) for f in fields(method) if f.name != "base"}


def twin_terms(case: Case) -> scalar.Loss:
    """The weighted terms of a case by the scalar twins."""
    base, scene = base_of(case.method), case.scene()
    options, buffers = options_of(base), dict(case.memory.named_buffers())
    if isinstance(base, Orca):
        name = "uncertainty" if case.method is base else "base.uncertainty"
        options["uncertainty"] = buffers[name].item()
        partners = case.method.decide(case.step()).partners
        options["labeled_partners"] = partners[: len(LABELS)].tolist()

    def loss(logits: scalar.Logits, slots: bool) -> scalar.Loss:
        match base:
            case FixMatchSigmoid():
                done = case.progress
                return scalar.fixmatch_sigmoid(scene, logits, slots, progress=done, **options)
            case FixMatch():
                return scalar.fixmatch(scene, logits, **options)
            case Orca():
                return scalar.orca(scene, logits, slots, **options)
            case SimCLR():
                return scalar.simclr(scene, logits, **options)
            case _:
                return scalar.supervised(scene, logits)

    if case.method is base:
        return loss(scene.max_logits, False)
    return scalar.with_fission(
        scene,
        loss,
        twin_classes(base, scene),
        case.head.l.tolist(),
        num_seen=SEEN,
        remembered=buffers["usage"].tolist() if "usage" in buffers else [],
        **options_of(case.method),
    )


def twin_classes(base: Method[Any], scene: scalar.Scene) -> scalar.Classes:
    """The classes that L_div divides, by the scalar twins."""
    match base:
        case FixMatchSigmoid():
            return scalar.fixmatch_classes(scene, scalar.sigmoids, base.threshold)
        case FixMatch():
            return scalar.fixmatch_classes(scene, softmax, base.threshold)
        case Orca():
            return scalar.orca_classes(scene, base.hard_threshold)
        case _:
            return scene.label_classes()


def assert_equals_twin(case: Case) -> dict[str, float]:
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    expected = twin_terms(case)
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}
    return found


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(name, seed):
    assert_equals_twin(make_case(METHODS[name], seed))


FIXMATCH_OPTIONS = [{"threshold": 0.7}, {"threshold": 0.7, "unlabeled_weight": 2.5}]
SIGMOID_OPTIONS = [
    {"threshold": 0.7, "ood_below": 0.6, "ood_weight": 0.3, "unlabeled_weight": 1.7},
    {"literal": True},
    {"literal": True, "ood_on": "slots"},
    {"ood_below": 0.9, "ood_on": "slots", "bce_reduction": "mean"},
    {"ood_below": 0.9, "ood_warmup": 0.6},
]
ORCA_OPTIONS = [
    {"margin_cap": 0.1},
    {"margin_cap": 0.9},
    {"margin_on": "max", "entropy_on": "max", "entropy_weight": 1.6},
    {"pair_space": "logit", "pair_weight": 0.4},
    {"pair_space": "prob", "pair_detach": True},
    {"pair_labeled": False, "hard_threshold": 0.6},
    {"pair_labeled": False, "pair_space": "logit", "pair_among": "unlabeled"},
]
FISSION_OPTIONS = [
    {"consistency_weight": 0.2, "diversity_weight": 2.0, "diversity_min_samples": 3},
    {"consistency_negatives": "max_slot", "assign_temperature": 3.0, "diversity_weight": 1.0},
    {"consistency_negatives": "all", "diversity_reduce": "per_sample", "diversity_weight": 1.0},
    {"diversity_scope": "ema", "diversity_momentum": 0.7, "diversity_weight": 1.0},
    {"diversity_classes": "seen", "prior": (0.4, 0.3, 0.2, 0.1), "diversity_weight": 1.0},
    {"diversity_scope": "ema", "prior": (0.4, 0.3, 0.2, 0.1), "diversity_weight": 1.0},
    {"local_diversity_weight": 0.3, "local_diversity_reduction": "sum", "diversity_weight": 1.0},
]
BASES = [
    *(FixMatch(**options) for options in FIXMATCH_OPTIONS),
    *(FixMatchSigmoid(**options) for options in SIGMOID_OPTIONS),
    *(Orca(**options) for options in ORCA_OPTIONS),
    SimCLR(contrast_temperature=0.5),
]


def ident(method: Method[Any]) -> str:
    base, default = base_of(method), type(base_of(method))()
    changed = [f"{k}={v}" for k, v in options_of(base).items() if v != getattr(default, k)]
    return " ".join([type(base).__name__, *changed])


@pytest.mark.parametrize("method", BASES, ids=ident)
def test_every_option_of_a_base_method_means_what_its_twin_says(method):
    assert_equals_twin(make_case(method, 1))


@pytest.mark.parametrize("method", BASES[:-1], ids=ident)
def test_every_option_of_a_base_method_carries_over_to_fission(method):
    assert_equals_twin(make_case(WithFission(method, diversity_weight=0.5), 1))


@pytest.mark.parametrize("options", FISSION_OPTIONS, ids=str)
@pytest.mark.parametrize(
    "base",
    [
        Supervised(),
        FixMatch(threshold=0.6),
        FixMatchSigmoid(threshold=0.6),
        Orca(hard_threshold=0.6),
    ],
    ids=lambda base: type(base).__name__,
)
def test_every_option_of_fission_means_what_its_twin_says(base, options):
    assert_equals_twin(make_case(WithFission(base, **options), 2))


def test_the_cases_hold_all_kinds_of_images():
    """Or else equality with the twins would say little."""
    for method in (BASES[0], WithFission(BASES[0])):
        targets = method.decide(make_case(method, 1).step())
        assert 0 < targets.trusted.sum() < UNLABELED
    for method in (FixMatchSigmoid(), WithFission(FixMatchSigmoid())):
        targets = method.decide(make_case(method, 1).step())
        assert targets.trusted.sum() > 0
        assert targets.ood.sum() > 0
        assert (targets.trusted + targets.ood).sum() < UNLABELED
    case = make_case(WithFission(Orca(hard_threshold=0.6)), 1)
    targets = case.method.decide(case.step())
    hard = targets.classes[case.rows("unlabeled", 0)]
    assert set(hard.sign().tolist()) == {-1, 0, 1}
    assert (hard >= SEEN).any()
    among_labeled = targets.partners[len(LABELS) :] < len(LABELS)
    assert 0 < among_labeled.sum() < UNLABELED


def test_defaults_are_those_of_the_method_page():
    fission = WithFission(Orca())
    assert (fission.consistency_weight, fission.diversity_weight) == (0.6, 0.001)
    assert (fission.assign_temperature, fission.traits.head.prototypes) == (10.0, 5)
    assert (fission.diversity_reduce, fission.diversity_scope) == ("batch_mean", "batch")
    assert (fission.consistency_negatives, fission.local_diversity_weight) == ("same_slot", 1.0)
    assert (fission.diversity_min_samples, fission.prior) == (2, None)
    assert (FixMatch().threshold, FixMatch().unlabeled_weight) == (0.95, 1.0)
    sigmoid = FixMatchSigmoid()
    assert (sigmoid.literal, sigmoid.ood_on, sigmoid.bce_reduction) == (False, "max", "sum")
    orca = Orca()
    assert (orca.margin_cap, orca.margin_on, orca.hard_threshold) == (0.5, "both", 0.95)
    assert (orca.pair_space, orca.pair_labeled, orca.pair_detach) == ("feature", True, False)
    assert orca.pair_among == "batch"
    assert (orca.pair_weight, orca.entropy_weight, orca.entropy_on) == (1.0, 1.0, "both")


@pytest.mark.parametrize("name", NAMES)
def test_decisions_carry_no_gradient_and_repeat_themselves(name):
    case = make_case(METHODS[name])
    first, second = case.method.decide(case.step()), case.method.decide(case.step())
    assert isinstance(first, Targets)
    assert first.classes.shape == (case.layout.rows,)
    for field in fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, torch.Tensor):
            assert not a.requires_grad
            assert torch.equal(a, b)
        else:
            assert a == b


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_finite_scalars_of_different_names_that_add_up(name):
    case = make_case(METHODS[name])
    terms = case.method.terms(case.step())
    assert len({term.name for term in terms}) == len(terms)
    for term in terms:
        assert term.value.shape == ()
        assert math.isfinite(term.value.item())
    assert total(terms).item() == close(sum(t.weight * t.value.item() for t in terms))


def test_the_total_weighs_each_term():
    terms = [Term("a", torch.tensor(2.0), 0.5), Term("b", torch.tensor(3.0))]
    assert total(terms).item() == 4


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_the_features_and_every_parameter_of_the_head(name):
    case = make_case(METHODS[name])
    total(case.method.terms(case.step())).backward()
    for tensor in (case.features, *case.head.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.norm() > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_the_whole_loss_is_right(name):
    """With every decision held still, as training holds it."""
    case = make_case(METHODS[name])
    targets = case.method.decide(case.step())

    def loss(features: torch.Tensor) -> torch.Tensor:
        return total(case.method.charge(case.step(features), targets))

    assert gradcheck(loss, leaves(case.features.detach()), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_risk_vectorises_over_slots_and_equals_a_loop(name):
    case = make_case(METHODS[name])
    step = case.step()
    targets = case.method.decide(step)
    slots = 3 * normal(*step.logits.shape, 3)

    def risk(logits: torch.Tensor) -> torch.Tensor:
        return total(case.method.risk(step, targets, logits))

    looped = torch.stack([risk(slots[..., slot]) for slot in range(3)])
    assert looped.std() > 1e-3
    assert_close(torch.vmap(risk, in_dims=-1)(slots), looped)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_frozen_value(name):
    method = METHODS[name]
    twin = replace(method)
    assert twin is not method
    assert twin == method
    assert hash(twin) == hash(method)
    for field in fields(method):
        with pytest.raises(FrozenInstanceError):
            setattr(method, field.name, None)


def test_no_two_methods_are_equal():
    assert len(set(METHODS.values())) == len(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_every_view_that_a_method_wants_it_uses(name):
    """Other features in any one view change the loss or the decision."""
    case = make_case(METHODS[name], progress=0.9)  # when every term has risen
    before = total(case.method.terms(case.step()))
    views = case.method.traits.views
    for kind, number in (("labeled", len(views.labeled)), ("unlabeled", len(views.unlabeled))):
        for view in range(number):
            features = case.features.detach().clone()
            rows = case.rows(kind, view)
            features[rows] = features[rows].flip(0, 1)  # another order alone means nothing
            assert abs(total(case.method.terms(case.step(features))) - before) > 1e-4, (kind, view)


@pytest.mark.parametrize("name", [n for n in NAMES if METHODS[n].traits.views.unlabeled])
def test_the_order_of_the_pool_means_nothing(name):
    """Nothing but its logits and features tells one unlabeled image from another."""
    case = make_case(METHODS[name])
    features = case.features.detach().clone()
    order = torch.randperm(UNLABELED, generator=rng(0))
    for view in range(len(case.method.traits.views.unlabeled)):
        rows = torch.tensor(case.rows("unlabeled", view))
        features[rows] = case.features.detach()[rows[order]]
    for a, b in zip(
        case.method.terms(case.step()), case.method.terms(case.step(features)), strict=True
    ):
        assert_close(b.value, a.value, msg=a.name)


@pytest.mark.parametrize("name", [n for n in NAMES if "fixmatch" in n])
def test_fixmatch_learns_from_labels_and_from_strong_views_it_has_decided_on(name):
    """The weak view decides and gets no gradient; an image of the band gets none either."""
    case = make_case(METHODS[name], 1)
    targets = case.method.decide(case.step())
    terms = case.method.risk(case.step(), targets, case.step().logits)
    total(terms).backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert moved[case.rows("labeled", 0)].all()
    assert not moved[case.rows("unlabeled", 0)].any()
    assert torch.equal(moved[case.rows("unlabeled", 1)], targets.trusted + targets.ood > 0)


@pytest.mark.parametrize("name", [n for n in NAMES if "fixmatch" in n])
def test_fixmatch_gives_classes_to_labels_and_trusted_strong_views(name):
    case = make_case(METHODS[name], 1)
    targets = case.method.decide(case.step())
    assert targets.classes[case.rows("labeled", 0)].tolist() == list(LABELS)
    assert targets.classes[case.rows("unlabeled", 0)].eq(NO_CLASS).all()
    strong = zip(targets.trusted.tolist(), targets.pseudo_labels.tolist(), strict=True)
    expected = [label if trusted else NO_CLASS for trusted, label in strong]
    assert targets.classes[case.rows("unlabeled", 1)].tolist() == expected


def by_hand(method: Method[Any], weak: list[list[float]], **others: Any) -> Any:
    """The decision of a FixMatch for given weak logits of the pool."""
    logits = torch.tensor([[0.0] * len(weak[0]), *weak, *weak])
    return method.decide(step_of(method, output_of(logits), [0], len(weak), **others))


def test_an_image_at_the_threshold_is_trusted():
    even, sure = [0.0, 0.0], [9.0, 0.0]  # probabilities of exactly 1/2, and of nearly 1
    assert by_hand(FixMatch(threshold=0.5), [even, sure]).trusted.tolist() == [1, 1]
    assert by_hand(FixMatch(threshold=0.51), [even, sure]).trusted.tolist() == [0, 1]


def test_an_image_at_the_lower_edge_of_the_band_is_ignored():
    weak = [[0.0, 0.0], [-1e-3, -1.0]]  # largest sigmoids: 1/2, and just below
    method = FixMatchSigmoid(ood_below=0.5)
    assert by_hand(method, weak, progress=0.5).ood.tolist() == [0, 1]


@pytest.mark.parametrize(("progress", "begun"), [(0.0, 0), (0.249, 0), (0.25, 1), (0.9, 1)])
def test_no_image_is_ood_before_the_warm_up_is_over(progress, begun):
    weak = [[-3.0, -3.0]]
    method = FixMatchSigmoid(ood_warmup=0.25)
    assert by_hand(method, weak, progress=progress).ood.tolist() == [begun]
    literal = replace(method, literal=True)
    assert by_hand(literal, weak, progress=progress).ood.tolist() == [1]


def test_read_literally_every_image_that_is_not_trusted_is_ood():
    weak = [[math.log(p / (1 - p)), -9.0] for p in (0.2, 0.6, 0.94, 0.96)]
    targets = by_hand(FixMatchSigmoid(literal=True), weak)
    assert targets.ood.tolist() == [1, 1, 1, 0]
    assert targets.trusted.tolist() == [0, 0, 0, 1]
    banded = by_hand(FixMatchSigmoid(), weak, progress=0.5)
    assert banded.ood.tolist() == [1, 0, 0, 0]


def test_a_sigmoid_pseudo_label_needs_no_other_class_to_be_low():
    """Softmax shares 1/2 and 1/2; sigmoids are both sure."""
    weak = [[6.0, 6.0]]
    assert by_hand(FixMatchSigmoid(), weak).trusted.tolist() == [1]
    assert by_hand(FixMatch(), weak).trusted.tolist() == [0]


def test_orca_counts_a_class_as_hard_from_the_threshold_on_in_each_view():
    sure, even = [9.0, 0.0], [0.0, 0.0]
    logits = torch.tensor(
        [even, sure, even, even, even, sure[::-1]]
    )  # view 1: L U U, view 2: L U U
    step = step_of(Orca(hard_threshold=0.5), output_of(logits), [1], 2)
    assert Orca(hard_threshold=0.5).decide(step).classes.tolist() == [1, 0, 0, 1, 0, 1]
    assert Orca(hard_threshold=0.51).decide(step).classes.tolist() == [1, 0, -1, 1, -1, 1]


@pytest.mark.parametrize(
    ("uncertainty", "cap", "margin"),
    [(0.3, 0.5, 3.0), (0.8, 0.5, 5.0), (0.8, 1.0, 8.0), (0.3, 0, 0)],
)
def test_the_margin_is_t_times_the_capped_uncertainty(uncertainty, cap, margin):
    case = make_case(Orca(margin_cap=cap), uncertainty=uncertainty)
    assert case.step().output.temperature == 10
    assert case.method.decide(case.step()).margin.item() == close(margin)


def test_the_margin_is_added_to_the_true_logit():
    """So it lowers the risk of a labeled image: seen classes wait for the novel ones."""
    logits = torch.zeros(4, 3, dtype=torch.float64)  # one labeled and one unlabeled image
    step = step_of(Orca(), output_of(logits, temperature=10.0), [1], 1)
    step.memory.uncertainty.fill_(0.2)
    supervised = next(t for t in Orca().terms(step) if t.name == "supervised")
    assert supervised.value.item() == close(math.log(math.exp(2) + 2) - 2)


def test_orca_starts_as_uncertain_as_can_be():
    assert Orca().memory(Sizes(6, 4, 2), rng(0)).uncertainty.item() == 1


def test_the_survey_weighs_every_image_of_the_pool_alike():
    """Chunks of different lengths: a mean of means would be off."""
    logits = 4 * normal(11, 5)
    expected = 1 - sum(max(softmax(z)) for z in logits.tolist()) / 11
    for method in (Orca(), WithFission(Orca())):
        memory = method.memory(Sizes(6, 5, 3, 3), rng(0))
        pool = [output_of(chunk) for chunk in logits.split([8, 2, 1])]
        method.survey(memory, Survey([], torch.empty(0, dtype=torch.long), pool))
        found = next(b for name, b in memory.named_buffers() if name.endswith("uncertainty"))
        assert found.item() == close(expected)


def test_a_labeled_partner_is_any_other_image_of_the_class():
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 0])
    drawn: dict[int, list[int]] = {i: [] for i in range(len(labels))}
    for seed in range(400):
        for i, j in enumerate(class_partners(labels, rng(seed)).tolist()):
            drawn[i].append(j)
    mates = {0: {2, 5, 6}, 1: {4}, 2: {0, 5, 6}, 3: {3}, 4: {1}, 5: {0, 2, 6}, 6: {0, 2, 5}}
    for i, found in drawn.items():
        assert set(found) == mates[i]
        for j in mates[i]:  # evenly: six standard deviations around the mean
            share, n = 1 / len(mates[i]), len(found)
            assert abs(found.count(j) - n * share) <= 6 * math.sqrt(n * share * (1 - share))


def test_labeled_partners_follow_the_step_s_generator():
    labels = torch.zeros(20, dtype=torch.long)
    assert torch.equal(class_partners(labels, rng(1)), class_partners(labels, rng(1)))
    assert not torch.equal(class_partners(labels, rng(1)), class_partners(labels, rng(2)))


@pytest.mark.parametrize("seed", range(3))
def test_nearest_partners_are_found_by_brute_force(seed):
    space = normal(12, 3, seed=seed) * normal(12, 1, seed=seed + 1).abs()
    features = {("unlabeled", 0, i): row for i, row in enumerate(space.tolist())}
    scene = scalar.Scene(features, {}, [], 12)
    nearest = nearest_partners(space)
    assert nearest.tolist() == scalar.orca_partners(scene, [])
    for first in (1, 5, 12):
        assert torch.equal(nearest_partners(space, first), nearest[first:])


def test_the_nearest_neighbour_is_by_angle_and_never_oneself():
    space = torch.tensor([[1.0, 0.0], [9.0, 1.0], [1.0, 0.9], [0.0, 5.0]])
    assert nearest_partners(space).tolist() == [1, 0, 1, 2]
    twice = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert nearest_partners(twice).tolist()[:2] == [1, 0]


@pytest.mark.parametrize("space", ["feature", "logit", "prob"])
@pytest.mark.parametrize("seed", range(3))
def test_unlabeled_partners_are_nearest_in_the_first_view_in_the_space_asked_for(space, seed):
    case = make_case(Orca(pair_space=space), seed)
    partners = case.method.decide(case.step()).partners.tolist()
    labeled = partners[: len(LABELS)]
    assert partners == scalar.orca_partners(case.scene(), labeled, space)
    assert [LABELS[j] for j in labeled] == list(LABELS)
    assert all(j != i for i, j in enumerate(labeled) if LABELS.count(LABELS[i]) > 1)


def test_partners_among_unlabeled_images_pass_over_a_labeled_one_that_is_nearer():
    features = torch.tensor([[1.0, 0.1], [0.2, 1.0], [-1.0, 0.0], [1.0, 0.0]])
    for among, partners in (("batch", [0, 1, 0]), ("unlabeled", [3, 1, 1])):
        method = Orca(pair_among=among)
        output = output_of(features.repeat(2, 1), features.repeat(2, 1))
        assert method.decide(step_of(method, output, [0], 3)).partners[1:].tolist() == partners


def test_the_spaces_of_pairs_differ():
    """The last image's nearest by angle: 0 by features, 1 by logits, 2 by probabilities."""
    features = torch.tensor([[1.0, 0.1], [0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]])
    logits = torch.tensor([[0.0, 3.0], [9.0, 0.0], [0.2, -1.0], [1.0, 0.0]])
    for space, partner in (("feature", 0), ("logit", 1), ("prob", 2)):
        method = Orca(pair_space=space)
        output = output_of(logits.repeat(2, 1), features.repeat(2, 1))
        assert method.decide(step_of(method, output, [0], 3)).partners[-1] == partner


def pair_gradient(**options: Any) -> tuple[Case, torch.Tensor]:
    case = make_case(Orca(**options))
    step = case.step()
    terms = case.method.terms(step)
    next(t for t in terms if t.name == "pairs").value.backward()
    return case, case.features.grad.norm(dim=-1) > 0


def test_pairs_teach_the_first_view_of_all_and_the_second_of_partners():
    case, moved = pair_gradient()
    partners = set(case.method.decide(case.step()).partners.tolist())
    for view, expected in ((0, set(range(len(LABELS) + UNLABELED))), (1, partners)):
        rows = case.rows("labeled", view) + case.rows("unlabeled", view)
        assert {i for i, row in enumerate(rows) if moved[row]} == expected


def test_a_detached_partner_learns_nothing():
    case, moved = pair_gradient(pair_detach=True)
    assert moved[case.rows("labeled", 0) + case.rows("unlabeled", 0)].all()
    assert not moved[case.rows("labeled", 1) + case.rows("unlabeled", 1)].any()


def test_pairs_without_labeled_images_leave_these_alone():
    case, moved = pair_gradient(pair_labeled=False)
    assert not moved[case.rows("labeled", 0)].any()
    assert moved[case.rows("unlabeled", 0)].all()


def test_the_pair_loss_by_hand():
    p, q = torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.2, 0.4, 0.4]])
    found = pair_loss(p.clamp_min(1e-30).log(), q.log())
    assert found.tolist() == [close(-math.log(0.3))]


def test_a_pair_that_disagrees_completely_costs_much_but_not_infinitely():
    logits = torch.tensor([[300.0, 0.0], [0.0, 300.0]], requires_grad=True)
    mine, theirs = logits.log_softmax(-1).split(1)
    loss = pair_loss(mine, theirs)
    loss.sum().backward()
    assert loss.item() == close(300 - math.log(2))
    assert logits.grad.isfinite().all()


def test_negative_entropy_by_hand():
    assert negative_entropy(torch.full((4,), 0.25)).item() == close(-math.log(4))
    sure = torch.tensor([1.0, 0.0], requires_grad=True)
    loss = negative_entropy(sure)
    loss.backward()
    assert loss.item() == 0
    assert sure.grad.isfinite().all()


def test_the_entropy_is_that_of_the_mean_and_not_the_mean_of_entropies():
    """Images that are each sure of a head of their own use the heads evenly."""
    logits = 50 * torch.eye(4, dtype=torch.float64).repeat(2, 1)
    step = step_of(Orca(), output_of(logits), [0, 1], 2)
    entropy = next(t for t in Orca().terms(step) if t.name == "entropy")
    assert entropy.value.item() == close(-math.log(4))


@pytest.mark.parametrize("temperature", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_nt_xent_equals_its_twin(temperature, seed):
    first, second = 2 * normal(5, 3, seed=seed), normal(5, 3, seed=seed + 1)
    expected = scalar.nt_xent(first.tolist(), second.tolist(), temperature)
    assert nt_xent(first, second, temperature).item() == close(expected)


def test_nt_xent_by_hand():
    """Two images, views alike, images opposite: one of three others is right, two are at -1."""
    views = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    share = math.exp(2) / (math.exp(2) + 2 * math.exp(-2))
    assert nt_xent(views, 3 * views, 0.5).item() == close(-math.log(share))


def test_gradients_of_the_pairwise_and_contrastive_losses():
    first, second = normal(4, 3), normal(4, 3, seed=1)
    assert gradcheck(
        lambda a, b: pair_loss(a.log_softmax(-1), b.log_softmax(-1)), leaves(first, second)
    )
    assert gradcheck(lambda z: negative_entropy(z.softmax(-1)), leaves(first))
    assert gradcheck(lambda a, b: nt_xent(a, b, 0.5), leaves(first, second))


def test_the_gradient_of_nt_xent_is_finite_for_vanishing_vectors():
    first = torch.zeros(3, 4, requires_grad=True)
    nt_xent(first, torch.ones(3, 4) * 1e20, 0.01).backward()
    assert first.grad.isfinite().all()


def test_simclr_looks_at_no_label():
    assert SimCLR().traits.views.labeled == ()
    case = make_case(SimCLR())
    assert case.method.decide(case.step()).classes.eq(NO_CLASS).all()


def test_supervised_looks_at_labeled_images_alone():
    assert Supervised().traits.views.unlabeled == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixMatch(threshold=0), r"^threshold = 0 must be above 0, at most 1\.$"),
        (lambda: FixMatch(threshold=1.2), r"^threshold = 1.2 "),
        (
            lambda: FixMatchSigmoid(ood_warmup=-0.1),
            r"^ood_warmup = -0.1 must be between 0 and 1\.$",
        ),
        (lambda: FixMatchSigmoid(ood_below=0.99), r"^ood_below = 0.99 .* the threshold, 0.95\.$"),
        (lambda: Orca(margin_cap=-1), r"^margin_cap = -1 must be at least 0\.$"),
        (lambda: Orca(hard_threshold=0), r"^hard_threshold = 0 must be above 0, at most 1\.$"),
        (lambda: SimCLR(contrast_temperature=0), r"^contrast_temperature = 0 must be above 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_orca_with_a_share_of_novel_images_wants_heads_used_by_it(share):
    """KL of the mean probability to the expected use, head by head."""
    case = make_case(Orca(novel_share=share, entropy_weight=2.0), 1)
    step = case.step()
    heads, unlabeled = SEEN + NOVEL, step.layout.unlabeled
    use = [0.0] * heads
    for y in LABELS:
        use[y] += 1 / (len(LABELS) + unlabeled)
    for head in range(heads):
        part = (1 - share) / SEEN if head < SEEN else share / NOVEL
        use[head] += part * unlabeled / (len(LABELS) + unlabeled)
    assert math.fsum(use) == close(1.0)
    assert case.method.expected_use(step).tolist() == close(use)
    probs = step.both(step.logits, 0).softmax(-1).mean(0).tolist()
    divergence = math.fsum(p * math.log(p / q) for p, q in zip(probs, use, strict=True))
    terms = {t.name: t for t in case.method.terms(step)}
    assert terms["entropy"].value.item() == close(divergence)
    assert terms["entropy"].weight == 2.0
    plain = {t.name: t.value.item() for t in Orca().terms(make_case(Orca(), 1).step())}
    assert {n: t.value.item() for n, t in terms.items() if n != "entropy"} == {
        n: close(v) for n, v in plain.items() if n != "entropy"
    }


def test_even_use_differs_from_no_use_by_a_constant_and_shares_out_of_range_are_refused():
    probs = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    even = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert unevenness(probs, even).item() == close(unevenness(probs).item() + math.log(3))
    assert unevenness(even, even).item() == close(0.0, abs=1e-12)
    assert unevenness(probs, probs).item() == close(0.0, abs=1e-12)
    assert unevenness(probs).item() == close(sum(p * math.log(p) for p in probs.tolist()))
    assert Orca().novel_share is None
    for share in (0.0, 1.0, -0.5):
        with pytest.raises(InputError, match="novel_share"):
            Orca(novel_share=share)
