"""Every head of HEADS: built, measured, started and saved, whichever kinds there are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from torch import nn

from builders import WIDTH, make_head, normal, rng
from protofission.core.errors import InputError
from protofission.models.heads import (
    HEADS,
    HeadEntry,
    HeadKind,
    HeadSpec,
    head_spec_of,
    kind_of,
    sizes_of,
    starting_kinds,
)
from protofission.models.start_from_data import start_from_data

SEEN, CLASSES = 3, 5
OPTIONS = {"prototypes": 4, "novel_prototypes": 2, "temperature": 7.0, "offset": 2.0}
STARTS = [kind for kind, entry in HEADS.items() if entry.can_start]
BUNDLES = [kind for kind, entry in HEADS.items() if entry.can_bundle]


def spec_for(kind: HeadKind, **options) -> HeadSpec:
    return HeadSpec(kind, **{**OPTIONS, **options})


def build(spec: HeadSpec) -> nn.Module:
    return spec.build(WIDTH, CLASSES, SEEN, rng(0))


def features() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labeled features, their labels, and a pool."""
    rows = 3 * torch.eye(WIDTH)[torch.arange(40) % CLASSES] + 0.1 * normal(40, WIDTH).float()
    labels = torch.arange(40) % CLASSES
    return rows[labels < SEEN], labels[labels < SEEN], rows


def state(head: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in head.state_dict().items()}


def test_kinds_and_entries_are_the_same():
    assert get_args(HeadKind) == tuple(HEADS)
    assert starting_kinds() == STARTS


@pytest.mark.parametrize("kind", HEADS)
def test_an_entry_has_what_it_says(kind):
    entry = HEADS[kind]
    for told, names in ((entry.can_start, ["start"]), (entry.can_bundle, ["options", "shapes"])):
        for name in names:
            own = getattr(type(entry), name) is not getattr(HeadEntry, name)
            assert own == told


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_is_of_its_kind_and_sizes(kind):
    spec = spec_for(kind)
    head = build(spec)
    assert [other for other, entry in HEADS.items() if entry.fits(head)] == [kind]
    assert kind_of(head) == kind
    output, sizes = head(normal(7, WIDTH).float()), sizes_of(head)
    assert output.similarities.shape == (7, sizes.classes, sizes.slots)
    assert output.prototypes.combined.shape == sizes
    assert sizes.slots == spec.slots
    extent = spec.extent(WIDTH, CLASSES)
    numbers = sum(value.numel() for value in head.state_dict().values())
    assert CLASSES * WIDTH <= extent.weights <= numbers
    assert (extent.row, extent.out) == (CLASSES * spec.slots, CLASSES)


@pytest.mark.parametrize("kind", HEADS)
def test_similarities_of_a_head_with_cosines_are_cosines(kind):
    if spec_for(kind).has_cosines:
        sims = make_head(spec_for(kind), CLASSES, 0)(50 * normal(200, WIDTH)).similarities
        assert 0.9 < sims.abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", STARTS)
def test_a_start_is_finite_new_and_a_function_of_the_seed(kind):
    spec = spec_for(kind, init="data")
    spec.check()
    before, head, again = (build(spec) for _ in range(3))
    for each in (head, again):
        start_from_data(each, *features(), SEEN, seed=1)
    assert sizes_of(head) == sizes_of(before)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in state(head).items())
    moved = [n for n, value in state(head).items() if not torch.equal(value, state(before)[n])]
    assert moved
    assert all(value.isfinite().all() for value in state(head).values())


@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind not in STARTS])
def test_other_heads_refuse_a_start_and_stay(kind):
    with pytest.raises(InputError, match=rf"{', '.join(STARTS)} heads, not for {kind}: set head"):
        spec_for(kind, init="data").check()
    head = build(spec_for(kind))
    before = state(head)
    with pytest.raises(InputError, match=rf"{type(head).__name__}: let it start at random"):
        start_from_data(head, *features(), SEEN, seed=1)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


@pytest.mark.parametrize("kind", BUNDLES)
@pytest.mark.parametrize("options", [{}, {"similarity": "mahalanobis"}, {"novel_prototypes": None}])
def test_a_saved_head_is_built_anew(kind, options):
    spec = spec_for(kind, **options)
    head = build(spec)
    shapes = spec.entry.shapes(spec, WIDTH, CLASSES)
    assert shapes == {name: tuple(value.shape) for name, value in head.state_dict().items()}
    found = head_spec_of(head)
    same = found.build(WIDTH, CLASSES, SEEN, rng(5))
    same.load_state_dict(head.state_dict())
    rows = normal(7, WIDTH).float()
    assert torch.equal(same(rows).slot_logits, head(rows).slot_logits)
    assert head_spec_of(same) == found
    used = [field.name for field in fields(spec) if getattr(found, field.name) != field.default]
    assert replace(found, **{name: getattr(spec, name) for name in used}) == found


@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind not in BUNDLES])
def test_other_heads_are_not_for_bundles(kind):
    head = build(spec_for(kind))
    with pytest.raises(InputError, match=rf"^A {type(head).__name__} is not for bundles: give"):
        head_spec_of(head)


def test_a_module_that_is_no_head_is_refused():
    with pytest.raises(InputError, match=rf"^Identity is not a head.*one of {', '.join(HEADS)}"):
        sizes_of(nn.Identity())
