"""Output of a run under way: warnings in time, a line an epoch, curves to be read back."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from protofission.core.errors import InputError
from protofission.core.metrics import Accuracy, PrototypeHealth, SubclassScore
from protofission.core.options import options, override
from protofission.core.records import Term
from protofission.methods import METHODS
from protofission.system.json_files import to_json
from protofission.training import run_console
from protofission.training.diagnosis import (
    EARLY,
    Finding,
    epoch_findings,
    learns_by_trust,
    start_warnings,
)
from protofission.training.experiment import Experiment
from protofission.training.history import Epoch, RunHistory, epochs_from_json
from protofission.training.loop import StepReport
from protofission.training.presets import PRESETS, preset
from protofission.training.run import Moment, perform
from protofission.training.run_console import show_run
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import RunMetrics
from protofission.training.run_words import epoch_line
from protofission.training.tensorboard import Tracker, curve_values
from runs import digits, small


def run_metrics(effective: float = 3.0, **others: Any) -> RunMetrics:
    """Numbers of which no two are equal."""
    values: dict[str, Any] = {
        "orca": Accuracy(0.81, 0.62, 0.73),
        "strict": Accuracy(0.84, 0.55, 0.66),
        "auc": 0.877,
        "aupr": 0.858,
        "fpr95": 0.439,
        "nmi": 0.512,
        "ari": 0.493,
        "prototypes": PrototypeHealth(1.1, effective, 2, 0.135, 0.456),
        "subclasses": SubclassScore(0.231, 0.417),
        "subclusters": SubclassScore(0.253, 0.391),
    }
    return RunMetrics(**{**values, **others})


def epoch(**others: Any) -> Epoch:
    values: dict[str, Any] = {
        "epoch": 6,
        "loss": 1.2345,
        "terms": {"supervised": 0.7, "pseudo": 0.3},
        "trusted": 0.4,
        "learning_rate": 0.05,
        "summary": run_metrics(),
        "neighbours": None,
    }
    return Epoch(**{**values, **others})


def names_options(sentence: str, experiment: Experiment) -> bool:
    """Whether a sentence names options, and all of them exist."""
    named, known = (
        re.findall(r"\b(?:method|recipe|backbone|head)\.\w+", sentence),
        options(experiment),
    )
    through_base = [name.replace("method.", "method.base.") for name in named]
    pairs = zip(named, through_base, strict=True)
    return bool(named) and all(name in known or inner in known for name, inner in pairs)


# Warnings

TRUSTING = {
    f"{name}{fission}"
    for name in ("fixmatch", "fixmatch-sigmoid", "nach", "opencos", "openmatch", "t2t")
    for fission in ("", "+pf")
}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_pool_without_trust_is_told_of_where_the_method_learns_by_trust(name):
    experiment = preset("digits", name)
    assert learns_by_trust(experiment) == (name in TRUSTING)
    for trusted, low in ((0.0, True), (0.0099, True), (0.01, False), (0.4, False), (None, False)):
        found = epoch_findings(epoch(trusted=trusted), experiment, 0.5)
        assert len(found) == (low and name in TRUSTING), (trusted, found)
        for _, sentence in found:
            assert f"({trusted:.1%} of its images)" in sentence
            assert "lower method.threshold" in sentence
            assert names_options(sentence, experiment)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_collapsed_prototypes_are_told_of_where_there_are_several(name):
    experiment = preset("digits", name)
    several = experiment.head.slots > 1
    assert several == (name.endswith("+pf") or name in ("cpl", "pmal"))
    remedy = "raise method.diversity_weight" if name.endswith("+pf") else "lower head.prototypes"
    for effective, collapsed in ((1.0, True), (1.19, True), (1.2, False), (math.nan, False)):
        found = epoch_findings(epoch(summary=run_metrics(effective)), experiment, 0.5)
        assert len(found) == (collapsed and several), (effective, found)
        for _, sentence in found:
            assert f"of 5 a class, {effective:.1f} are in use" in sentence
            assert remedy in sentence
            assert names_options(sentence, experiment)


def test_a_head_with_one_prototype_cannot_collapse():
    experiment = override(preset("digits", "fixmatch+pf"), "head.prototypes=1")
    assert epoch_findings(epoch(summary=run_metrics(1.0)), experiment, 0.5) == []


def test_both_warnings_stand_side_by_side_and_the_second_waits_for_an_evaluation():
    experiment = preset("digits", "fixmatch+pf")
    bad = epoch(trusted=0.0, summary=run_metrics(1.0))
    trust, collapse = epoch_findings(bad, experiment, 0.5)
    assert (trust.kind, collapse.kind) == ("trust", "collapse")
    assert trust.sentence.startswith("Nothing in the pool is trusted")
    assert collapse.sentence.startswith("The prototypes have collapsed")
    unevaluated = dataclasses.replace(bad, summary=None)
    assert epoch_findings(unevaluated, experiment, 0.5) == [trust]


def test_nothing_is_said_early():
    experiment = preset("digits", "fixmatch+pf")
    bad = epoch(trusted=0.0, summary=run_metrics(1.0))
    assert EARLY == 0.25
    for progress in (0.0, 0.1, 0.2499):
        assert epoch_findings(bad, experiment, progress) == []
    for progress in (0.25, 0.9, 1.0):
        assert len(epoch_findings(bad, experiment, progress)) == 2


def test_a_frozen_random_start_is_told_of_before_the_first_step():
    for stages in range(3):
        experiment = override(preset("digits", "orca"), f"recipe.trainable_stages={stages}")
        (sentence,) = start_warnings(experiment)
        assert sentence.startswith(f"{3 - stages} of 3 stages are frozen and random")
        assert "recipe.trainable_stages=none" in sentence
        assert "backbone.weights=..." in sentence
        assert names_options(sentence, experiment)
        assert start_warnings(override(experiment, "backbone.weights=simclr.pt")) == []
        assert start_warnings(override(experiment, "recipe.trainable_stages=none")) == []
    assert start_warnings(override(experiment, "recipe.trainable_stages=3")) == []


def test_of_the_presets_those_that_want_the_user_s_weights_say_so():
    for name in PRESETS:
        wants = name.startswith(("paper/", "digits"))
        assert bool(start_warnings(preset(name, "orca+pf"))) == wants, name
        assert start_warnings(preset(name, "simclr")) == [], name


def test_findings_are_told_apart_by_their_kind_and_not_by_their_words(monkeypatch, tmp_path):
    found = iter([("trust", "a: 1"), ("trust", "b: 2"), ("collapse", "a: 3"), ("trust", "c")])
    monkeypatch.setattr(run_console.diagnosis, "epoch_findings", lambda *_: [Finding(*next(found))])
    monkeypatch.setattr(run_console, "perform", performed([epoch(epoch=n) for n in range(4)]))
    console = Console(file=io.StringIO(), width=80)
    show_run(small("supervised"), digits(), RunFolder(tmp_path), console)
    said = re.findall("Warning: (.*)", console.file.getvalue())
    assert said == ["a: 1", "a: 3"]
    assert next(found, None) is None


# What an epoch is made of


def report(step: int, terms: dict[str, float], trusted: float | None) -> StepReport:
    weights = {"supervised": 1.0, "pseudo": 0.5}
    made = tuple(Term(name, torch.tensor(v), weights[name]) for name, v in terms.items())
    return StepReport(step, step // 2, step % 2 == 1, made, trusted, 0.1 / (step + 1))


@pytest.mark.parametrize("trusted", [(0.25, 0.75), (None, None)])
def test_an_epoch_is_the_mean_of_its_steps_with_the_last_learning_rate(trusted):
    progress = RunHistory()
    progress.add(report(0, {"supervised": 1.0, "pseudo": 4.0}, trusted[0]))
    progress.add(report(1, {"supervised": 3.0, "pseudo": 8.0}, trusted[1]))
    first = progress.end_epoch(run_metrics(), None)
    assert first == Epoch(
        epoch=0,
        loss=2.0 + 0.5 * 6.0,
        terms={"supervised": 2.0, "pseudo": 6.0},
        trusted=None if trusted[0] is None else 0.5,
        learning_rate=0.05,
        summary=run_metrics(),
        neighbours=None,
    )
    progress.add(report(2, {"supervised": 7.0, "pseudo": 0.0}, trusted[0]))
    second = progress.end_epoch(None, 0.3)  # the first epoch's steps are forgotten
    assert (second.epoch, second.loss, second.neighbours) == (1, 7.0, 0.3)
    assert progress.history == [first, second]


def test_epochs_are_read_as_they_were_written_and_nan_is_null():
    health = PrototypeHealth(math.nan, math.nan, 0, math.nan, 0.5)
    nothing = run_metrics(auc=math.nan, strict=Accuracy(0.5, math.nan, 0.5), prototypes=health)
    written = [epoch(summary=nothing), epoch(epoch=7, summary=None, trusted=None, neighbours=0.2)]
    text = to_json([dataclasses.asdict(one) for one in written])
    read = epochs_from_json(json.loads(text, parse_constant=pytest.fail))
    assert repr(read) == repr(written)  # NaN equals nothing, but looks like itself
    assert read[1] == written[1]


# The line of an epoch


LONGEST = epoch(
    epoch=1023,
    loss=12.34567,
    trusted=1.0,
    summary=run_metrics(orca=Accuracy(1, 1, 1), strict=Accuracy(1, 1, 1), auc=1.0),
)


@pytest.mark.parametrize(
    "longest",
    [
        epoch(),
        LONGEST,
        dataclasses.replace(LONGEST, trusted=None, summary=None, neighbours=1.0),
        dataclasses.replace(LONGEST, loss=-123.456789, summary=None, neighbours=1.0),
    ],
    ids=["usual", "longest", "pretraining", "negative"],
)
def test_the_line_of_an_epoch_fits_eighty_columns(longest):
    assert len(epoch_line(longest)) <= 80


def test_the_line_of_an_epoch_has_its_numbers():
    """Epochs count from 1 for people; accuracies are the strict ones."""
    said = epoch_line(epoch())
    for word in (
        "epoch 7",
        "loss 1.23",
        "trusted 40",
        "seen 84",
        "novel 55",
        "all 66",
        "AUC 0.877",
    ):
        assert word in said
    assert "neighbors" not in said
    pretrained = epoch_line(epoch(trusted=None, summary=None, neighbours=0.4321))
    assert "neighbors 43.21%" in pretrained
    assert not {"trusted", "seen", "AUC"} & set(pretrained.split())


# Curves


def numbers(value: Any) -> Iterator[float]:
    """All numbers of nested plain values."""
    match value:
        case dict():
            for inner in value.values():
                yield from numbers(inner)
        case int() | float():
            yield value


def test_curves_hold_every_number_of_an_epoch():
    whole = epoch(neighbours=0.321)
    plain = dataclasses.asdict(whole)
    assert plain.pop("epoch") == 6  # the place, not a value
    found = curve_values(whole)
    assert len(set(numbers(plain))) == len(list(numbers(plain)))  # none stands for another
    assert set(numbers(plain)) <= set(found.values())
    assert len(found) == len(list(numbers(plain)))


def test_curves_have_names_that_tell_them_apart():
    found = curve_values(epoch())
    assert found["loss"] == 1.2345
    assert found["learning_rate"] == 0.05
    assert found["trusted"] == 0.4
    assert found["terms/pseudo"] == 0.3
    assert (found["strict/seen"], found["strict/novel"], found["strict/all"]) == (0.84, 0.55, 0.66)
    assert (found["orca/seen"], found["orca/novel"], found["orca/all"]) == (0.81, 0.62, 0.73)
    assert found["auc"] == 0.877
    assert "neighbours" not in found
    assert curve_values(epoch(summary=None, trusted=None, neighbours=0.2)) == {
        "loss": 1.2345,
        "learning_rate": 0.05,
        "terms/supervised": 0.7,
        "terms/pseudo": 0.3,
        "neighbours": 0.2,
    }


def read_back(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    """All curves as tensorboard's own reader finds them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder.path / "tensorboard"))
    reader.Reload()
    return {
        name: [(event.step, event.value) for event in reader.Scalars(name)]
        for name in reader.Tags()["scalars"]
    }


def expected(history: list[Epoch]) -> dict[str, list[tuple[int, Any]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for one in history:
        for name, value in curve_values(one).items():
            close = pytest.approx(value, rel=1e-6, nan_ok=True)
            found.setdefault(name, []).append((one.epoch, close))
    return found


def test_tensorboard_reads_the_curves_back(tmp_path):
    pytest.importorskip("tensorboard")
    folder, tracker = RunFolder(tmp_path), Tracker(RunFolder(tmp_path))
    assert not list(tmp_path.iterdir())  # nothing before the first epoch
    written = [epoch(epoch=n, loss=2.0 - n, trusted=0.1 * n) for n in range(3)]
    for number, one in enumerate(written):
        tracker.add(one)
        assert read_back(folder) == expected(written[: number + 1])  # at once, not at the end


@pytest.mark.parametrize("save_every", [0.0, math.inf], ids=["saved at once", "saved at the end"])
def test_epochs_that_a_resumed_run_repeats_are_not_doubled(save_every, tmp_path):
    """The first life is killed after an epoch that its saved state does not have."""
    pytest.importorskip("tensorboard")
    experiment, folder = small("supervised", "recipe.epochs=4"), RunFolder(tmp_path)
    moments, tracker = perform(experiment, digits(), folder, save_every=0), Tracker(folder)
    saved = b""
    for moment in moments:
        if moment.epoch is not None:
            tracker.add(moment.epoch)
            if moment.epoch.epoch == 0:
                saved = (tmp_path / "state.safetensors").read_bytes()
            if moment.epoch.epoch == 2:
                break
    moments.close()
    (tmp_path / "state.safetensors").write_bytes(saved)
    assert [step for step, _ in read_back(folder)["loss"]] == [0, 1, 2]
    tracker = Tracker(folder)
    for moment in perform(experiment, digits(), folder, resume=True, save_every=save_every):
        if moment.epoch is not None:
            tracker.add(moment.epoch)
    assert [step for step, _ in read_back(folder)["loss"]] == [0, 1, 2, 3]
    assert read_back(folder) == expected(folder.history())


def test_without_tensorboard_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r'needs tensorboard: pip install "protofission\[track\]"'):
        Tracker(RunFolder(tmp_path))


# A run as it is shown


def performed(epochs: list[Epoch]) -> Callable[..., Iterator[Moment]]:
    """In the place of `perform`: the ends of epochs."""

    def moments(*arguments: object, **options: object) -> Iterator[Moment]:
        for one in epochs:
            report = StepReport(3 * one.epoch + 2, one.epoch, True, (), one.trusted, 0.1)
            yield Moment(report, one)

    return moments


def test_a_warning_is_said_once_though_its_number_changes(monkeypatch, tmp_path):
    experiment = override(small("fixmatch+pf"), "recipe.epochs=4")
    shown = [
        epoch(epoch=n, trusted=0.001 * n, summary=run_metrics(1.0 + 0.05 * n)) for n in range(4)
    ]
    monkeypatch.setattr(run_console, "perform", performed(shown))
    console = Console(file=io.StringIO(), width=80)
    show_run(experiment, digits(), RunFolder(tmp_path), console)
    said = console.file.getvalue()
    for one in shown:
        assert epoch_line(one) in said.splitlines()
    assert said.count("Warning: Nothing in the pool is trusted") == 1
    assert said.count("Warning: The prototypes have collapsed") == 1
    assert said.rstrip().endswith(f"The run: {tmp_path}")


@pytest.mark.parametrize("name", ["fixmatch", "supervised", "orca"])
def test_the_trusted_share_is_of_images(name, tmp_path: Path):
    """With a threshold that every image passes, all of the pool is trusted."""
    if name == "fixmatch":
        experiment = small(name, "method.threshold=1e-9")
    elif name == "orca":
        experiment = small(name, "method.hard_threshold=1e-9")
    else:
        experiment = small(name)
    wanted = None if name == "supervised" else 1.0
    for moment in perform(experiment, digits(), RunFolder(tmp_path)):
        assert moment.report.trusted == wanted
        if moment.epoch is not None:
            assert moment.epoch.trusted == wanted
