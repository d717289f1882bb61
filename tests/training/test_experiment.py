"""Experiments: typed overrides, and refusals that name the key, the value and the remedy."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.core.options import as_text, options, override
from protofission.data.splits.registry import SPLITS
from protofission.methods import METHODS
from protofission.models.model import BODIES
from protofission.training.experiment import Experiment, as_json
from protofission.training.presets import PRESETS, preset
from protofission.training.schedules import number_of_steps
from protofission.triage.fit_model import FitOptions


def test_an_override_changes_one_value_and_copies() -> None:
    before = preset("digits", "orca+pf")
    after = override(before, "head.prototypes=3")
    assert (before.head.prototypes, after.head.prototypes) == (5, 3)
    assert dataclasses.replace(after, head=before.head) == before


def test_a_key_of_the_base_is_found_through_the_wrapper() -> None:
    plain = override(preset("digits", "orca"), "method.entropy_weight=2")
    wrapped = override(preset("digits", "orca+pf"), "method.entropy_weight=2")
    assert wrapped.method.base.entropy_weight == plain.method.entropy_weight == 2.0


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("recipe.epochs=7", 7),
        ("recipe.learning_rate=1e-3", 1e-3),
        ("recipe.schedule=cosine", "cosine"),
        ("recipe.decay_delta=true", True),
        ("recipe.steps_per_epoch=none", None),
        ("recipe.steps_per_epoch=4", 4),
        ("recipe.warmup_epochs=1", 1),
        ("recipe.warmup_epochs=1.0", 1.0),
        ("recipe.warmup_epochs=0.5", 0.5),
        ("method.prior=0.5, 0.2,0.1,0.1,0.1", (0.5, 0.2, 0.1, 0.1, 0.1)),
        ("head.similarity=mahalanobis", "mahalanobis"),
    ],
)
def test_texts_become_values_of_the_field_s_type(assignment: str, value: object) -> None:
    changed = override(preset("digits", "orca+pf"), assignment)
    found = options(changed)[assignment.partition("=")[0]].value
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("recipe.epoch=seen", "Unknown value of recipe.epoch: 'seen'. Known: labeled, pool."),
        ("recipe.epochs=many", "recipe.epochs = 'many' must be a whole number."),
        ("recipe.epochs=2.5", "recipe.epochs = '2.5' must be a whole number."),
        ("recipe.learning_rate=fast", "recipe.learning_rate = 'fast' must be a finite number."),
        ("recipe.warmup_epochs=none", "recipe.warmup_epochs = 'none' must be a finite number."),
        ("recipe.decay_delta=maybe", "recipe.decay_delta = 'maybe' must be true or false."),
        ("recipe.epohcs=3", "Unknown key 'recipe.epohcs'. Did you mean 'recipe.epochs'? Known:"),
        (
            "haed.prototypes=3",
            "Unknown key 'haed.prototypes'. Did you mean 'head.prototypes'? Known: backbone, data",
        ),
        ("recipe=3", "'recipe' is a group of options: name one of them, such as recipe.epochs."),
        ("recipe.epochs.x=3", "'recipe.epochs.x' goes too deep"),
        ("recipe.epochs", "'recipe.epochs' is not of the form key=value"),
        ("=3", "'=3' is not of the form key=value"),
        ("recipe.epochs=0", "epochs = 0 must be at least 1."),
        ("head.prototypes=0", "prototypes = 0 must be at least 1."),
        ("head.temperature=0", "temperature = 0.0 must be above 0."),
        ("method.hard_threshold=1.5", "hard_threshold = 1.5 must be above 0, at most 1."),
        ("method.prior=0.9,0.2", "must be positive and sum to 1"),
        ("method.consistency_weight=-1", "consistency_weight = -1.0 must be at least 0."),
        ("judging.ood_score=maxprob", "Unknown ood_score 'maxprob'. Did you mean 'max_prob"),
        ("recipe.steps_per_epoch=0", "steps_per_epoch = 0 must be at least 1."),
        ("recipe.epochs=1" + "0" * 400, "is too large"),
        ("name=x", "name cannot be set: it comes with what it is the name of."),
        ("seed=5", "seed cannot be set: use --seed, or --first-seed and --seeds where there"),
        ("recipe.momentum=5", "momentum = 5.0 must be at least 0 and below 1."),
        ("recipe.weight_decay=-1", "weight_decay = -1.0 must be at least 0."),
        ("method.diversity_weight=nan", "diversity_weight = 'nan' must be a finite number."),
        ("recipe.learning_rate=inf", "recipe.learning_rate = 'inf' must be a finite number."),
    ],
)
def test_bad_overrides_get_one_sentence(assignment: str, words: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        override(preset("digits", "orca+pf"), assignment)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "assignment", "words"),
    [
        ("orca+pf", "head.novel_prototypes=2", "novel_prototypes = 2 must divide prototypes = 5."),
        ("orca+pf", "method.prior=0.5,0.5", "one number for each of the 5 prototypes."),
        ("fixmatch", "head.kind=projection", "head.kind = projection does not fit"),
        ("simclr", "head.kind=cosine", "head.kind = cosine does not fit"),
        ("orca", "recipe.trainable_stages=9", "trainable_stages = 9 must be between 0 and"),
        ("orca", "recipe.trainable_stages=-1", "trainable_stages = -1 must be between 0 and"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(
    name: str, assignment: str, words: str
) -> None:
    experiment = override(preset("digits", name), assignment)
    with pytest.raises(ValueError, match=re.escape(words)):
        experiment.check()


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"Unknown preset 'digit'. Did you mean 'digits'"):
        preset("digit", "orca")
    with pytest.raises(ValueError, match=r"Unknown method 'orca\+fp'. Did you mean 'orca\+pf'"):
        preset("digits", "orca+fp")


@pytest.mark.parametrize("preset_name", sorted(PRESETS))
def test_every_experiment_is_a_value_that_is_read_back_from_its_json(preset_name: str) -> None:
    texts = set()
    for name in METHODS:
        experiment, again = (
            dataclasses.replace(preset(preset_name, name), seed=7) for _ in range(2)
        )
        assert experiment == again, name
        assert hash(experiment) == hash(again), name
        text = as_json(experiment)
        assert json.loads(text, parse_constant=pytest.fail)["name"] == name
        texts.add(text)
        found = Experiment.from_json(text)
        assert found == experiment, name
        assert as_json(found) == text, name  # to the letter: folders are named by it
        assert type(found.method) is type(experiment.method)
    assert len(texts) == len(METHODS)  # no two are one experiment


@pytest.mark.parametrize("split", sorted(SPLITS))
@pytest.mark.parametrize("body", sorted(BODIES))
def test_every_split_and_backbone_is_read_back(split: str, body: str) -> None:
    experiment = override(preset("digits", "orca+pf"), f"data.split={split}")
    for assignment in (f"backbone={body}", "method.prior=0.5,0.2,0.1,0.1,0.1", "data.store=a b"):
        experiment = override(experiment, assignment)
    assert Experiment.from_json(as_json(experiment).encode()) == experiment


def test_an_option_that_an_earlier_version_did_not_have_has_its_default() -> None:
    experiment = preset("digits", "orca+pf")
    plain = json.loads(as_json(experiment))
    for part, key in (
        ("recipe", "trunk_cache"),
        ("judging", "neighbours"),
        ("head", "novel_prototypes"),
        ("data", "store"),
        ("backbone", "pixels"),
        ("method", "prior"),
    ):
        del plain[part][key]
    del plain["method"]["base"]["entropy_on"]
    assert Experiment.from_json(json.dumps(plain)) == experiment


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("color", "red", "color is not known"),
        ("recipe.color", "red", "recipe.color is not known"),
        ("method.base.color", "red", "method.base.color is not known"),
        ("data.split.color", "red", "data.split.color is not known"),
        ("name", "orka", "Unknown method 'orka'. Did you mean 'orca'"),
        ("name", 3, "name must be a text, not 3"),
        ("data.split.name", "orka", "Unknown split 'orka'"),
        ("recipe", None, "recipe must be an object, not None"),
        ("recipe.epochs", 2.5, "recipe.epochs must be a whole number, not 2.5"),
        ("recipe.epochs", "none", "recipe.epochs must be a whole number, not 'none'"),
        ("recipe.schedule", "sine", "recipe.schedule must be one of step, cosine"),
        ("recipe.learning_rate", -1, "learning_rate = -1.0 must be above 0"),
        ("backbone", {"width": 16}, "backbone.blocks is missing"),
        ("backbone.hidden", 16, "backbone.block is not known"),
        ("seed", -1, "seed = -1 must be between 0 and"),
    ],
)
def test_an_experiment_of_another_version_is_refused(path: str, value: object, words: str) -> None:
    plain = json.loads(as_json(preset("digits", "orca+pf")))
    *parts, last = path.split(".")
    place = plain
    for part in parts:
        place = place[part]
    place[last] = value
    with pytest.raises(InputError, match=re.escape(f"of this version ({words}")) as caught:
        Experiment.from_json(json.dumps(plain))
    assert str(caught.value).endswith("): run it again.")


@pytest.mark.parametrize("part", [part.name for part in dataclasses.fields(Experiment)])
def test_an_experiment_without_one_of_its_parts_is_refused(part: str) -> None:
    plain = json.loads(as_json(preset("digits", "orca")))
    del plain[part]
    with pytest.raises(InputError, match=f"{part} is missing"):
        Experiment.from_json(json.dumps(plain))
    for broken in ("", "[]", "{", '{"name": NaN}'):
        with pytest.raises(InputError, match="not one of this version"):
            Experiment.from_json(broken)


def test_every_option_of_every_method_can_be_set_to_its_own_value() -> None:
    for name in METHODS:
        experiment = preset("digits", name)
        for key, option in options(experiment).items():
            if key in ("name", "seed", "data.split.name"):
                continue  # names that come with what they name, and --seed
            value = option.value
            assert override(experiment, f"{key}={as_text(value)}") == experiment


def test_the_literal_preset_takes_the_paper_at_its_word() -> None:
    orca = preset("digits/literal", "orca+pf").method
    fixmatch = preset("digits/literal", "fixmatch-sigmoid+pf").method
    assert (orca.base.entropy_on, orca.local_diversity_weight) == ("max", 0.0)
    assert fixmatch.base.literal


def test_every_option_is_documented(project: Path) -> None:
    text = (project / "docs" / "method.md").read_text()
    sections = {
        section.split("\n", 1)[0].removesuffix(" (reading)"): section.split("\n", 1)[-1]
        for section in (project / "docs" / "methods.md").read_text().split("\n## ")
    }
    for name in METHODS:
        own = sections.get(name.removesuffix("+pf"), "")
        for key, option in options(preset("digits", name)).items():
            if key.startswith(("method.", "head.", "judging.", "recipe.")):
                said = key.replace("base.", "")
                assert said in text or f"`{said.removeprefix('method.')}`" in own or said in own, (
                    name,
                    key,
                )
            assert option.meaning, key


def test_steps_go_before_epochs():
    experiment = override(preset("digits", "orca"), "recipe.steps=7")
    data = experiment.data.load().training
    assert number_of_steps(experiment.recipe, data) == 7
    assert number_of_steps(override(experiment, "recipe.epochs=none").recipe, data) == 7


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_is_a_natural_number_of_63_bits(seed: int) -> None:
    experiment = dataclasses.replace(preset("digits", "orca"), seed=2**63 - 1)
    with pytest.raises(InputError, match=f"seed = {seed} must be between 0 and"):
        dataclasses.replace(experiment, seed=seed)
    with pytest.raises(InputError, match=f"seed = {seed} must be between 0 and"):
        FitOptions(seed=seed)
