"""Hostile command lines for every verb."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from chaos.materials import ENCODER, ON_IMAGES

VALUES = [
    *("-1", "0", "1", "2", "1.5", "-0.0", "1e308", "-1e308", "1e-320", "nan", "inf", "-inf", ""),
    *(" ", "x", "auto", "None", "True", "()", "(1,)", "[1, 2]", "{}", "x" * 5000, ".."),
    *("/dev/null", "/dev/zero", "/proc/self/mem", "~nobody-at-all/x", "a\nb", "\x1b[2J", "é猫"),
    *(
        "\udcff",
        "9" * 400,
        "99999999999999999999",
        "0x10",
        "1_000",
        "\u0661",
        "--",
        "-",
        "@x",
        "=",
        "a=b",
    ),
    *("labeled", "list.csv", "model", "store", "run", "orca.json", "own.yaml", "nowhere"),
]
PLACES = [
    *(
        "",
        " ",
        ".",
        "..",
        "x" * 300,
        "a/" * 3000,
        "a\nb",
        "\x1b[2J",
        "é猫",
        "\udcff",
        "-",
        "labeled",
    ),
    *("list.csv", "model", "store", "run", "own.yaml/x", "new/deeper/place", "nan", "new.csv"),
]
"""For what is written: nothing outside the scratch folder."""
FEW = ["-1", "0", "1", "2", "1.5", "nan", "inf", "", "x", "None", "1e308", "-99999999999999999999"]
"""For numbers of which many would be a long work that a user may well want."""


class Verb(NamedTuple):
    """A verb with arguments that are right, and the options that are worth a wrong value."""

    name: tuple[str, ...]
    right: tuple[str, ...]
    """Positional arguments."""
    rest: tuple[str, ...] = ()
    """Options that keep it short."""
    options: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    """Options that are numbers of things to do."""
    sets: tuple[str, ...] = ()
    """Keys of --set."""
    set_counts: tuple[str, ...] = ()
    values: Sequence[str] = VALUES
    """For its arguments."""


RECIPE = (
    *("recipe.learning_rate", "recipe.schedule", "recipe.milestones", "recipe.warmup_epochs"),
    *("recipe.momentum", "recipe.nesterov", "recipe.weight_decay", "recipe.clip", "recipe.ema"),
    *("recipe.precision", "recipe.trainable_stages", "recipe.frozen_statistics", "recipe.epoch"),
    *("recipe.optimizer", "recipe.labeled_batch", "recipe.unlabeled_batch", "recipe.trunk_cache"),
    *("judging.ood_score", "judging.novel", "judging.keep", "judging.select", "judging.every"),
    *("judging.neighbours", "judging.auc_heads", "backbone.width", "backbone.blocks"),
    *("backbone.block", "backbone.stem", "backbone.shortcut", "backbone.pixels"),
    *("backbone.weights", "data.dataset", "data.folder", "data.split.name", "data.split.seed"),
    *("data.split.labeled_share", "data.split.num_seen", "data.views", "data.store", "seed"),
    *("head.kind", "head.prototypes", "head.novel_prototypes", "head.similarity", "head.delta"),
    *("head.temperature", "head.offset", "head.init", "head.norm", "name", "method", "recipe"),
    *("method.diversity_scope", "method.entropy_weight", "method.threshold", "method.ridge"),
)
METHODS = ("orca", "orca+pf", "fixmatch+pf", "step", "cgdl", "openldn", "simgcd", "nothing")
ONE = ("--set", "recipe.epochs=1", "--set", "recipe.steps_per_epoch=2")
TRAINING = (*ON_IMAGES, *ONE, "--out", "new-run")
_RUNNING = ("--seed", "--accelerator", "--save-every", "--out", "--preset", "--store")

VERBS = [
    Verb(("train",), ("orca+pf",), TRAINING, _RUNNING, ("--processes", "--nodes"), RECIPE,
         ("recipe.epochs", "recipe.steps_per_epoch", "recipe.steps")),
    Verb(("pretrain",), (), ("--preset", "digits", *TRAINING), _RUNNING[:-1],
         ("--processes", "--nodes"), RECIPE, ("recipe.epochs", "recipe.steps")),
    Verb(("demo",), (), ("--methods", "orca", *ON_IMAGES, *ONE, "--out", "new-demo"),
         ("--first-seed", "--methods", "--preset", "--out"), ("--seeds",), RECIPE),
    Verb(("embed",), ("labeled",), (*ENCODER, "--processes", "1", "--out", "new-store"),
         ("--encoder", "--plain", "--views", "--folder", "--seed", "--accelerator", "--out"),
         ("--weak", "--strong", "--simclr", "--processes"), ("size", "source", "crop", "x")),
    Verb(("fit",), ("labeled", "pool"),
         (*ENCODER, "--steps", "3", "--processes", "1", "--out", "new-model"),
         ("--keep", "--discover", "--encoder", "--seed", "--out"),
         ("--steps", "--processes", "--prototypes"), ("size", "x")),
    Verb(("predict",), ("model", "new"), ("--processes", "1"), ("--out", "--format"),
         ("--processes",)),
    Verb(("drift",), ("model", "new"), ("--processes", "1"), (), ("--processes",)),
    Verb(("show",), ("model",)),
    Verb(("export",), ("model", "new.onnx"), ("--input", "features"), ("--input",),
         values=PLACES),
    Verb(("suite",), ("own.yaml",), ("--dry-run", "--out", "new-suites", "--workers", "1"),
         ("--tier", "--dataset", "--stores", "--first-seed", "--only", "--budget", "--out"),
         ("--seeds", "--workers"), RECIPE),
    Verb(("report",), ("run",), ("--out", "new-report"), ("--out",)),
    Verb(("data", "check"), ("labeled", "pool"), (), (), ("--size",)),
    Verb(("data", "fetch"), ("mnist-of-nobody",), ("--folder", "new-data"), ("--folder",)),
    Verb(("split",), ("orca",), (), ("--dataset", "--folder", "--out"), (),
         ("seed", "num_seen", "labeled_share", "ratio", "x")),
    Verb(("weights",), ("packed.safetensors",), (), ("--backbone", "--channels", "--out"), (),
         ("width", "blocks", "stem", "x")),
    Verb(("methods",), ("orca+pf",), (), ("--preset",)),
    Verb(("presets",), ()),
]  # fmt: skip
WRITTEN = ("--out", "--stores", "--folder")
"""Options that name what is written."""
NEEDS = ("images", "model", "store", "run", "split", "packed")
"""The materials that the words speak of."""


def hostile_line(rng: random.Random) -> tuple[str, ...]:
    """A command line with one to three things in it that are not right."""
    verb = rng.choice(VERBS)
    right, options = list(verb.right), list(verb.rest)
    if verb.name == ("train",):
        right[0] = rng.choice(METHODS)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        acts = (
            ["argument"] * 2 + ["option"] * 4 * bool(verb.options) + ["count"] * bool(verb.counts)
        )
        acts += ["set"] * 5 * bool(verb.sets) + ["set count"] * bool(verb.set_counts)
        match rng.choice([*acts, "unknown", "missing", "more"]):
            case "argument" if right:
                right[rng.randrange(len(right))] = rng.choice(verb.values)
            case "option":
                option = rng.choice(verb.options)
                options += (option, rng.choice(PLACES if option in WRITTEN else VALUES))
            case "count":
                options += (rng.choice(verb.counts), rng.choice(FEW))
            case "set":
                options += ("--set", _assignment(rng, verb.sets, VALUES))
            case "set count":
                options += ("--set", _assignment(rng, verb.set_counts, FEW))
            case "unknown":
                options += (
                    rng.choice(("--nothing", "-z", "--set", "--out", "--", "-o=", "--no-x")),
                )
            case "missing" if right:
                right.pop()
            case _:
                right.append(rng.choice(verb.values))
    return (*verb.name, *right, *options)


def _assignment(rng: random.Random, keys: Sequence[str], values: Sequence[str]) -> str:
    key, value = rng.choice(keys), rng.choice(values)
    return rng.choice((f"{key}={value}",) * 8 + (key, f"={value}", f"{key}.x={value}"))
