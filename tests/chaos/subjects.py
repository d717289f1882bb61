"""The commands of the campaign, and what an undisturbed run of each leaves."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chaos.lives import Start, undisturbed
from chaos.materials import (
    DEMO,
    EMBED,
    FIT,
    JOURNAL,
    ON_IMAGES,
    PREDICT,
    PRETRAIN,
    ROWS,
    SUITE,
    TRAIN,
    TRAIN_STORE,
    options,
)
from chaos.stage import BrokenStageError, Saved, Snapshot, Stage, snapshot, steps

RUN = ("run/*",)
STORE = ("store/**/*",)
MODEL = ("model/*",)


@dataclass(frozen=True)
class Subject:
    """A command, and what is needed to judge it."""

    name: str
    arguments: Sequence[str]
    makes: tuple[str, ...] = ()
    """What it writes: files and folders."""
    needs: tuple[str, ...] = ()
    """Materials."""
    again: tuple[str, ...] = ()
    """What a life after the first is given besides."""
    done: str = ""
    """A path that says that all is done, where the command then refuses to do it again."""
    saved: Saved | None = None
    """How much is saved that the next life goes on from."""
    ours: tuple[str, ...] = ()
    """Files that we wrote: if one is damaged, nothing else may come out."""
    theirs: tuple[str, ...] = ()
    """Files of the user: if one is damaged, something else may come out."""
    prints: bool = False
    """Whether what it prints is what it is for."""
    alone: bool = False
    """Whether it wants an interpreter of its own, as it starts other processes."""
    tells: str = ""
    """A page of it that says `damaged` of what it leaves out for that."""
    same_as: str = ""
    """Whose undisturbed run ends in the same bytes, where its own begins in the middle."""
    weight: float = 1.0
    program: Path | None = None
    """Another program than the command line, to try the campaign itself."""

    def start(self, stage: Stage, *, again: bool = False) -> Start:
        """A life of it."""
        arguments = (*self.arguments, *(self.again if again else ()))
        start = stage.start(arguments, alone=self.alone)
        return start if self.program is None else _of(self.program, start)


def _of(program: Path, start: Start) -> Start:
    return Start(start.arguments, start.work, start.environment, program=program)


def _training(name: str, arguments: Sequence[str], **more: object) -> Subject:
    folder = arguments[-1]
    return Subject(
        name,
        arguments,
        (folder,),
        again=("--resume",),
        done=f"{folder}/finished",
        saved=steps,
        **more,  # type: ignore[arg-type]
    )


def _train(method: str, *more: str) -> tuple[str, ...]:
    return ("train", method, *ON_IMAGES, *more, "--save-every", "0", "--out", "run")


_ALL = [
    _training("train", TRAIN),
    _training("train ema", _train("fixmatch-sigmoid+pf", *options(recipe__ema=0.9)[-2:])),
    _training("train lars", _train("orca", "--set", "recipe.optimizer=lars")),
    _training("train cgdl", _train("cgdl")),
    _training("train openldn", _train("openldn")),
    _training("train ds3l", _train("ds3l")),
    _training("pretrain", PRETRAIN),
    _training("train store", TRAIN_STORE, needs=("store",), ours=STORE),
    _training("train from run", (*TRAIN[:-2], "--set", "backbone.weights=simclr", *TRAIN[-2:]),
              needs=("simclr",), ours=("simclr/*",)),
    _training("train from file",
              (*TRAIN[:-2], "--set", "backbone.weights=packed.safetensors", *TRAIN[-2:]),
              needs=("packed",), theirs=("packed.safetensors",)),
    _training("train processes", (*TRAIN[:-2], "--processes", "2", *TRAIN[-2:]),
              alone=True, weight=0.3),
    Subject("resume", (*TRAIN, "--resume"), ("run",), ("half-run",), ours=RUN, same_as="train"),
    Subject("resume store", (*TRAIN_STORE, "--resume"), ("run",), ("store", "half-store-run"),
            ours=(*RUN, *STORE), same_as="train store"),
    Subject("demo", DEMO, ("demo",), saved=steps, weight=0.5),
    Subject("demo again", DEMO, ("demo",), ("half-demo",), ours=("demo/**/*",), same_as="demo",
            weight=0.5),
    Subject("embed", EMBED, ("store",), ("images",), saved=JOURNAL,
            theirs=("labeled/**/*.png",)),
    Subject("embed cached", EMBED, ("store",), ("images", "cache"), ours=("cache/**/*",),
            same_as="embed"),
    Subject("embed again", EMBED, ("store",), ("images", "store"), ours=STORE, same_as="embed"),
    Subject("embed half", EMBED, ("store",), ("images", "half-store"), ours=STORE,
            same_as="embed"),
    Subject("embed processes", (*EMBED[:-3], "2", *EMBED[-2:]), ("store",), ("images",),
            saved=JOURNAL, alone=True, same_as="embed", weight=0.3),
    Subject("embed list", ("embed", "list.csv", *EMBED[2:]), ("store",), ("images",),
            theirs=("list.csv",)),
    Subject("embed parquet", ("embed", "list.parquet", *EMBED[2:]), ("store",),
            ("images", "list"), theirs=("list.parquet",)),
    Subject("embed onnx", ("embed", "labeled", "--encoder", "net.onnx", *EMBED[4:]), ("store",),
            ("images", "onnx"), theirs=("net.onnx",)),
    Subject("embed by run", ("embed", "labeled", "--encoder", "simclr", *EMBED[4:]), ("store",),
            ("images", "simclr"), ours=("simclr/*",)),
    Subject("fit", FIT, ("model",), ("images",), done="model", saved=JOURNAL,
            theirs=("labeled/**/*.png", "pool/*.png")),
    Subject("fit half", FIT, ("model",), ("images", "half-fit"), done="model",
            ours=(".model.fitting/**/*",), same_as="fit"),
    Subject("predict", PREDICT, ("rows.csv",), ("images", "model"), saved=ROWS, ours=MODEL,
            theirs=("new/*.png",)),
    Subject("predict half", PREDICT, ("rows.csv",), ("images", "model", "half-rows"),
            ours=(".rows.csv.rows", *MODEL), same_as="predict"),
    Subject("predict parquet", (*PREDICT[:-1], "rows.parquet"), ("rows.parquet",),
            ("images", "model"), saved=ROWS),
    Subject("predict store", ("predict", "model", "store", *PREDICT[3:]), ("rows.csv",),
            ("store", "model"), saved=ROWS, ours=(*STORE, *MODEL)),
    Subject("predict processes", (*PREDICT[:-3], "2", *PREDICT[-2:]), ("rows.csv",),
            ("images", "model"), saved=ROWS, alone=True, same_as="predict", weight=0.3),
    Subject("suite", SUITE, ("suites",), ("images", "store"), saved=steps, alone=True, weight=0.2),
    Subject("suite again", SUITE, ("suites",), ("images", "store", "suites"),
            ours=("suites/**/*",), theirs=("own.yaml",), tells="suites/own/report.md",
            same_as="suite", alone=True, weight=0.2),
    Subject("export", ("export", "model", "model.onnx"), ("model.onnx",), ("model",),
            done="model.onnx", ours=MODEL, weight=0.3),
    Subject("export features", ("export", "model", "head.onnx", "--input", "features"),
            ("head.onnx",), ("model",), done="head.onnx", ours=MODEL, weight=0.3),
    Subject("report", ("report", "run", "--out", "report"), ("report",), ("run",), ours=RUN,
            tells="report/report.md"),
    Subject("weights", ("weights", "simclr", "--out", "packed.safetensors"),
            ("packed.safetensors",), ("simclr",), done="packed.safetensors", ours=("simclr/*",)),
    Subject("weights file", ("weights", "packed.safetensors", "--channels", "1"), (), ("packed",),
            theirs=("packed.safetensors",), prints=True),
    Subject("show", ("show", "model"), (), ("model",), ours=MODEL, prints=True),
    Subject("drift", ("drift", "model", "new", "--processes", "1"), (), ("images", "model"),
            ours=MODEL, theirs=("new/*.png",), prints=True),
    Subject("data check", ("data", "check", "labeled", "pool"), (), ("images",),
            theirs=("labeled/**/*.png",), prints=True),
    Subject("split", ("split", "orca", "--out", "orca.json"), ("orca.json",)),
    Subject("split file", ("split", "orca.json"), (), ("split",), ours=("orca.json",),
            prints=True),
]  # fmt: skip
SUBJECTS = {subject.name: subject for subject in _ALL}


class Reference(NamedTuple):
    """What an undisturbed life leaves."""

    files: Snapshot
    out: str
    seconds: float


@dataclass
class References:
    """The references, each made when it is first asked for."""

    stage: Stage
    subjects: dict[str, Subject] = field(default_factory=lambda: SUBJECTS)
    _made: dict[str, Reference] = field(default_factory=dict)

    def of(self, subject: Subject) -> Reference:
        """What the subject must come to."""
        name = subject.same_as or subject.name
        if name not in self._made:
            self._made[name] = self._run(self.subjects[name])
        return self._made[name]

    def _run(self, subject: Subject) -> Reference:
        print(f"  undisturbed: {subject.name}", file=sys.stderr, flush=True)
        laid = self.stage.lay(subject.needs)
        ending = undisturbed(subject.start(self.stage))
        if ending.code != 0 or ending.left:
            raise BrokenStageError(f"{subject.name}, undisturbed: {ending}")
        return Reference(produced(self.stage, subject, laid), ending.out, ending.seconds)


def produced(stage: Stage, subject: Subject, laid: set[str]) -> Snapshot:
    """The files that are there besides what was laid, and those of what the subject makes."""
    return {
        name: value
        for name, value in snapshot(stage.work).items()
        if name not in laid or name.split("/")[0] in subject.makes
    }
