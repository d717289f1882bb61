"""Types of arguments that several verbs share, and the command line as typed."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token


def whole_number(_: type, tokens: Sequence[Token]) -> int:
    """Parse an int; a number such as 1.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} must be a whole number.") from None


def number_or_auto(_: type, tokens: Sequence[Token]) -> int | str:
    """Parse an int, or auto."""
    text = tokens[0].value
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} must be a whole number, or auto.") from None


def in_a_folder(_: type, path: Path | None) -> None:
    """Refuse an output in an object store; a Path has lost one of its slashes."""
    found = re.match("(s3|gs|hf):/+", str(path))
    if found:
        shown = f"{found[1]}://{str(path)[found.end() :]}"
        raise ValueError(f"{shown} is in an object store: name a place in a folder.")


Whole = Annotated[int, Parameter(converter=whole_number)]
NumberOrAuto = Annotated[int | Literal["auto"], Parameter(converter=number_or_auto)]
Flag = Annotated[bool, Parameter(negative="")]
Names = Annotated[
    tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
]
Model = Annotated[
    Path,
    Parameter(
        help="A model: the folder that `protofission fit` writes, a .zip of `protofission pack`, "
        "or hf://OWNER/NAME[@REVISION], which is downloaded."
    ),
]
AllowDownload = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Download the model's encoder from the hub if it is not on this machine; by default "
        "nothing is downloaded.",
    ),
]
Images = Annotated[tuple[Path, ...], Parameter(negative="")]
Set = Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)]
Out = Annotated[Path, Parameter(name=["--out", "-o"], validator=in_a_folder)]
OptionalOut = Annotated[
    Path | None, Parameter(name=["--out", "-o"], show_default=False, validator=in_a_folder)
]
OptionalPath = Annotated[Path | None, Parameter(show_default=False)]
OptionalTracker = Annotated[Literal["tensorboard", "mlflow"] | None, Parameter(show_default=False)]
OptionalText = Annotated[str | None, Parameter(show_default=False)]
OptionalQuality = Annotated[Literal["fast", "good", "best"] | None, Parameter(show_default=False)]
OptionalWhole = Annotated[Whole | None, Parameter(show_default=False)]
On = Annotated[str, Parameter(name="--on")]
Accelerator = Literal["auto", "cpu", "cuda"]


def program() -> tuple[str, ...]:
    """The words that start this program in the user's shell."""
    if shutil.which("protofission"):
        return ("protofission",)
    if Path(sys.argv[0]).name == "protofission":
        return (sys.argv[0],)
    return sys.executable, "-m", "protofission"


def command_text(words: Iterable[object], width: int = 80) -> str:
    """Write a command to copy, indented; a wide one on several lines, options with their values."""
    parts: list[str] = []
    for word in map(shlex.quote, map(str, words)):
        if parts and parts[-1].startswith("--") and " " not in parts[-1]:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = ["   "]
    for part in parts:
        if len(f"{lines[-1]} {part} \\") > width:
            lines.append(" " * 7)
        lines[-1] += f" {part}"
    return " \\\n".join(lines)


def command_line() -> str:
    """The command as typed, for reports and pages."""
    return shlex.join(["protofission", *sys.argv[1:]])


def name_tracker(arguments: Sequence[str]) -> list[str]:
    """Arguments in which `--track` has a name; alone it means TensorBoard, as it always did."""
    following = [*arguments, "-"][1:]
    return [
        f"{text}=tensorboard" if text == "--track" and after.startswith("-") else text
        for text, after in zip(arguments, following, strict=True)
    ]
