"""An experiment is one frozen value. Overrides are typed, and refuse what they do not know."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import math
import textwrap
import types
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from protofission.data.datasets import DataSpec
from protofission.errors import (
    InputError,
    UnknownKeyError,
    check_choices,
    not_known,
    require,
    unknown,
)
from protofission.fission import check_sizes
from protofission.methods import Method, method_named
from protofission.models.backbones import BackboneSpec
from protofission.models.heads import HeadSpec
from protofission.scores import SCORES

Value = TypeVar("Value")


@dataclass(frozen=True)
class Recipe:
    """How the weights learn."""

    epochs: int = 200
    """How long training takes."""
    epoch: Literal["labeled", "pool"] = "labeled"
    """What one epoch passes over."""
    steps_per_epoch: int | None = None
    """The length of an epoch where it is not one pass."""
    labeled_batch: int = 128
    """Labeled images of a step."""
    unlabeled_batch: int = 384
    """Unlabeled images of a step."""
    learning_rate: float = 0.1
    """Of SGD, at the start."""
    schedule: Literal["step", "cosine"] = "step"
    """x 0.1 at 70 % and 90 % of training, or half a cosine to 0."""
    momentum: float = 0.9
    """Of SGD."""
    weight_decay: float = 5e-4
    """On all weights but delta."""
    decay_delta: bool = False
    """Whether weight decay pulls delta to 0, that is, lambda to 1/2."""
    trainable_stages: int | None = 1
    """How many of the backbone's last stages learn, the rest is frozen; all where none is given."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(
            epochs=self.epochs,
            labeled_batch=self.labeled_batch,
            unlabeled_batch=self.unlabeled_batch,
        )
        if self.steps_per_epoch is not None:
            check_sizes(steps_per_epoch=self.steps_per_epoch)
        require(self.learning_rate > 0, f"learning_rate = {self.learning_rate} must be above 0.")
        require(
            0 <= self.momentum < 1, f"momentum = {self.momentum} must be at least 0 and below 1."
        )
        require(self.weight_decay >= 0, f"weight_decay = {self.weight_decay} must be at least 0.")


@dataclass(frozen=True)
class Judging:
    """How predictions are judged."""

    ood_score: str = "max_probability"
    """A name of protofission.scores.SCORES."""
    auc_heads: Literal["seen", "all"] = "seen"
    """The heads that an ID score looks at: a novel cluster that is sure of itself is not ID."""
    keep: float = 0.95
    """Methods without novel heads reject: this share of the labeled images is kept."""
    select: Literal["last", "oracle"] = "last"
    """The reported epoch. "oracle" is the best one by the test set's own labels: a bound."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.ood_score not in SCORES:
            raise unknown("ood_score", self.ood_score, SCORES)
        require(0 < self.keep < 1, f"keep = {self.keep} must lie between 0 and 1.")


@dataclass(frozen=True)
class Experiment:
    """All that determines a run."""

    name: str
    """The method's name."""
    method: Method[Any]
    head: HeadSpec
    data: DataSpec = field(default_factory=DataSpec)
    backbone: BackboneSpec = field(default_factory=BackboneSpec)
    recipe: Recipe = field(default_factory=Recipe)
    judging: Judging = field(default_factory=Judging)
    seed: int = 0
    """Of all that is random in training."""

    def check(self) -> None:
        """Refuse parts that do not fit each other; each part has checked itself."""
        self.head.check()
        self.method.check(self.head)
        views = self.method.views
        rows = len(views.labeled) * self.recipe.labeled_batch
        rows += len(views.unlabeled) * self.recipe.unlabeled_batch
        require(
            rows > 1, "A batch of one image cannot be standardised: raise recipe.labeled_batch."
        )
        stages = self.recipe.trainable_stages
        require(
            stages is None or 0 <= stages <= self.backbone.stages,
            f"trainable_stages = {stages} must be between 0 and the backbone's "
            f"{self.backbone.stages} stages.",
        )


def experiment_of(name: str, **parts: Any) -> Experiment:
    """The experiment of a method by name, with the head that it wants where none is given."""
    method = method_named(name)
    return Experiment(name, **{"method": method, "head": method.head, **parts})


def as_json(value: Any) -> str:
    """An experiment, or a part of one, as JSON with its keys in order."""
    return json.dumps(dataclasses.asdict(value), indent=2)


def override(value: Value, assignment: str) -> Value:
    """A copy with one option changed by `key=value`, where a key is a dotted path.

    A key that a method with fission does not have is looked for in its base, so that
    `method.entropy_weight=2` means the same for `orca` and `orca+pf`.
    """
    key, separator, text = assignment.partition("=")
    require(
        bool(separator and key),
        f"{assignment!r} is not of the form key=value: for instance recipe.epochs=20.",
    )
    key = key.strip()
    require(key != "name", "The name is the method's own: choose another method instead.")
    try:
        changed: Value = _replaced(value, key.split("."), text.strip(), key)
    except _NoSuchKeyError as miss:
        guesses = [known.replace("base.", "") for known in options(value)]
        raise UnknownKeyError(not_known("key", key, miss.siblings, guesses)) from None
    return changed


@dataclass(frozen=True)
class Option:
    """A value that can be overridden, and what its class says of it."""

    value: Any
    meaning: str


def options(value: Any, prefix: str = "") -> dict[str, Option]:
    """All dotted keys of an experiment with their values and meanings."""
    found: dict[str, Option] = {}
    meanings = _field_docs(type(value))
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        if dataclasses.is_dataclass(inner):
            found |= options(inner, f"{prefix}{item.name}.")
        else:
            found[prefix + item.name] = Option(inner, meanings.get(item.name, ""))
    return found


def _field_docs(kind: type) -> dict[str, str]:
    """The strings below a dataclass's fields, its bases' included."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue  # defined where no source is kept, as in a notebook
        for field_, doc in itertools.pairwise(getattr(body, "body", [])):
            match field_, doc:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs


class _NoSuchKeyError(Exception):
    """A path that leads nowhere, with the names that would have led on."""

    def __init__(self, siblings: list[str]) -> None:
        super().__init__()
        self.siblings = siblings


def _replaced(value: Any, path: list[str], text: str, key: str) -> Any:
    name, *rest = path
    names = [item.name for item in dataclasses.fields(value)]
    if name not in names and "base" in names:
        return dataclasses.replace(value, base=_replaced(value.base, path, text, key))
    if name not in names:
        prefix = key.removesuffix(".".join(path))
        raise _NoSuchKeyError([prefix + known for known in names])
    inner = getattr(value, name)
    if dataclasses.is_dataclass(inner):
        require(
            bool(rest),
            f"{key!r} is a group of options: name one of them, such as "
            f"{key}.{dataclasses.fields(inner)[0].name}.",
        )
        return dataclasses.replace(value, **{name: _replaced(inner, rest, text, key)})
    require(not rest, f"{key!r} goes too deep: {name!r} has no options of its own.")
    wanted = get_type_hints(type(value))[name]
    return dataclasses.replace(value, **{name: _parsed(text, wanted, key)})


def _parsed(text: str, wanted: Any, key: str) -> Any:
    """A text as a value of the wanted type."""
    origin, choices = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if text.lower() == "none":
            return None
        return _parsed(text, next(kind for kind in choices if kind is not type(None)), key)
    if origin is Literal:
        if text not in choices:
            raise unknown(f"value of {key}:", text, choices)
        return text
    if origin is tuple:
        return tuple(_parsed(part.strip(), choices[0], key) for part in text.split(","))
    if wanted is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{key} = {text!r} must be true or false.")
        return text.lower() == "true"
    if wanted in (int, float):
        kind = "a whole number" if wanted is int else "a finite number"
        try:
            number = wanted(text)
        except ValueError:
            raise InputError(f"{key} = {text!r} must be {kind}.") from None
        require(
            isinstance(number, int) or math.isfinite(number), f"{key} = {text!r} must be {kind}."
        )
        require(
            isinstance(number, float) or abs(number) < 2**63, f"{key} = {text[:20]} is too large."
        )
        return number
    return text
