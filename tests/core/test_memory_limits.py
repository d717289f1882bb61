"""A model that takes more memory than is free is refused before it is built."""

from pathlib import Path

import pytest
import torch
from torch import nn

from conftest import Call
from protofission.core import memory_limits as memory
from protofission.core.errors import InputError
from protofission.core.memory_limits import free_memory, require_memory
from protofission.models.adapters import AdapterSpec
from protofission.models.backbones import BACKBONES, BackboneSpec
from protofission.models.heads import HeadSpec
from stores import made


def weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("kind", ["none", "linear", "rectified", "mlp"])
def test_the_extent_of_an_adapter_is_that_of_its_weights(kind: str) -> None:
    spec = AdapterSpec(kind, width=7, hidden=11)  # type: ignore[arg-type]
    built = spec.build(5, torch.Generator())
    assert spec.extent((5,)).weights == weights(built)
    assert spec.extent((5,)).out == built.num_features


@pytest.mark.parametrize("kind", ["fission", "cosine", "distance", "linear", "student"])
def test_the_extent_of_a_head_is_about_that_of_its_weights(kind: str) -> None:
    spec = HeadSpec(kind, prototypes=3)  # type: ignore[arg-type]
    built = spec.build(40, 6, 4, torch.Generator())
    assert spec.extent(40, 6).weights == pytest.approx(weights(built), rel=0.2)
    assert spec.extent(40, 6).row == built(torch.ones(1, 40)).similarities[0].numel()


OTHERS = {"wide": BackboneSpec(width=64), "deep": BackboneSpec(blocks=(5, 5))}


@pytest.mark.parametrize("spec", [*BACKBONES.values(), *OTHERS.values()], ids=repr)
def test_the_extent_of_a_backbone_is_about_that_of_its_weights(spec: BackboneSpec) -> None:
    built = spec.build(3, torch.Generator())
    assert spec.extent((3, 32, 32)).weights == pytest.approx(weights(built), rel=0.4)
    assert spec.extent((3, 32, 32)).out == built.num_features


def test_what_is_free_is_what_machine_and_container_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert 2**20 < free_memory() < 2**50
    (tmp_path / "limit").write_text("12345\n")
    (tmp_path / "none").write_text("max\n")
    names = ("limit", "none", "missing")
    monkeypatch.setattr(memory, "LIMITS", [str(tmp_path / name) for name in names])
    assert free_memory() == 12345
    require_memory(12345, "A thing")
    with pytest.raises(InputError, match=r"A thing would take about 2\.0 GB of memory"):
        require_memory(2 * 10**9, "A thing")


@pytest.mark.parametrize(
    ("assignment", "word"),
    [
        ("head.prototypes=10000000", "10,000,000 prototypes"),
        ("backbone.width=1000000000", "1,000,000,000 features"),
        ("backbone.width=10000000000", "width = 10000000000 must be at most 1,000,000,000."),
        ("recipe.labeled_batch=1000000000", "rows on"),
        ("recipe.steps=1000000000000", "steps = 1000000000000 must be at most"),
        ("recipe.epochs=1000000000000", "epochs = 1000000000000 must be at most"),
    ],
)
def test_sizes_of_training_that_no_machine_has_room_for_are_one_sentence(
    call: Call, tmp_path: Path, assignment: str, word: str
) -> None:
    store = made(tmp_path / "store").folder
    command = ("train", "orca+pf", "--store", store, "--out", tmp_path / "run")
    sizes = ("--set", "recipe.unlabeled_batch=32", "--set", assignment)
    said = call(*command, *sizes)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert word in said.err
    assert not (tmp_path / "run" / "state").exists()


def test_images_too_are_refused(call: Call, tmp_path: Path) -> None:
    sizes = ("backbone.blocks=900", "backbone.width=8192")
    arguments = [word for size in sizes for word in ("--set", size)]
    said = call("train", "orca+pf", "--out", tmp_path / "run", *arguments)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "GB are free: lower one of these numbers." in said.err


def test_a_step_that_fits_is_not_refused_and_one_that_does_not_is(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "store").folder
    sizes = ("--set", "recipe.unlabeled_batch=32", "--set", "recipe.steps=2")
    command = ("train", "orca+pf", "--store", store, *sizes, "--out")
    monkeypatch.setattr(memory, "free_memory", lambda: 10**5)
    assert "and 0.0 GB are free" in call(*command, tmp_path / "no").err
    monkeypatch.setattr(memory, "free_memory", lambda: 10**7)
    assert call(*command, tmp_path / "yes").code == 0
