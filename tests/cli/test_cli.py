"""The command line as a person meets it: real processes, one sentence, exit code 2."""

import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cyclopts import App
from PIL import Image

from commands import in_a_process
from conftest import Call
from protofission.cli import app


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmeo"], 'Unknown command "dmeo". Did you mean "demo"?'),
        (["demo", "--seed", "3"], "Unknown option: --seed. Did you mean --seeds?"),
        (["demo", "--seeds", "many"], "Invalid value for --seeds: 'many' must be a whole number."),
        (["demo", "--seeds", "1.5"], "Invalid value for --seeds"),
        (["demo", "--seeds", "99999999999"], "seeds = 99999999999 must be at least 1, at most"),
        (["demo", "--set", "name=../x"], "name cannot be set"),
        (["demo", "--set", "seed=7"], "seed cannot be set: use --seed, or --first-seed and"),
        (["demo", "--set", "simclr:backbone.width=4"], "backbone.width of simclr is that of"),
        (["demo", "--set", "backbone.width=9000"], "more than 8192 features"),
        (["demo", "--set", "data.split.seed=-1"], "seed = -1 must be between 0"),
        (["demo", "--set", "recipe.epochs=1" + "0" * 400], "is too large"),
        (["demo", "--first-seed", "-1"], "first_seed = -1 must be between 0 and 2^63 - 1."),
        (["demo", "--first-seed", str(2**63 - 1), "--seeds", "2"], f"The last seed = {2**63} must"),
        (["demo", "--seeds", "0"], "seeds = 0 must be at least 1, at most 1000."),
        (["demo", "--methods", "orka"], "Unknown method 'orka'. Did you mean 'orca'?"),
        (["demo", "--methods", "simclr"], "simclr is trained anyway"),
        (["demo", "--preset", "digit"], "Unknown preset 'digit'. Did you mean 'digits'?"),
        (["demo", "--set", "head.prototypes=0"], "prototypes = 0 must be at least 1."),
        (["demo", "--set", "head.protoypes=3"], "Did you mean 'head.prototypes'?"),
        (["demo", "--set", "orka:head.prototypes=3"], "Did you mean 'orca'?"),
        (["demo", "--set", "recipe.labeled_batch=0"], "labeled_batch = 0 must be at least 1."),
        (["demo", "--set", "data.split.labeled_share=0.0001"], "has no labeled image"),
        (["demo", "--set", "method.prior=0.5,0.5"], "one number for each of the 5 prototypes"),
        (["methods", "orka"], "Unknown method 'orka'. Did you mean 'orca'?"),
        (["predict", "model", ""], "Argument 3 is empty: give a value; the current folder is '.'."),
        (["show", ""], "Argument 2 is empty"),
        (["train", "orca", "--out="], "--out is empty"),
        (["data", "check", "labeled", ""], "Argument 4 is empty"),
        (["embed", "", "--out", "x"], "Argument 2 is empty"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.startswith("protofission: ")
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["dmeo"], ["demo", "--set", "head.protoypes=3"]])
def test_a_process_that_refuses_leaves_with_two_and_no_traceback(
    arguments: list[str], tmp_path: Path
) -> None:
    done = in_a_process(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("protofission: Unknown")
    assert done.stderr.count("\n") == 1


def test_help_shows_examples_and_fits_eighty_columns(call: Call) -> None:
    for arguments in (["--help"], ["demo", "--help"], ["methods", "--help"]):
        done = call(*arguments)
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= 80
    assert "protofission demo --seeds 5" in call("demo", "--help").out


def verbs(of: App = app, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The verbs of the command line, `data check` and its like too."""
    found = []
    for name in of:
        if not name.startswith("-"):
            inner = verbs(of[name], (*before, name))
            found += inner or [(*before, name)]
    return found


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_the_help_of_every_verb_shows_an_example_and_says_what_each_argument_is(
    verb: tuple[str, ...], call: Call
) -> None:
    done = call(*verb, "--help")
    assert done.code == 0
    lines = done.out.splitlines()
    example = " ".join(("protofission", *verb))
    assert [line for line in lines if line.strip().startswith(example)], done.out
    rows = [line.strip("│ *") for line in lines if line.startswith("│")]
    bare = [row for row in rows if re.fullmatch(r"(--?)?[\w-]+( -\w)?( [A-Z.]+)? +\[.*", row)]
    assert not bare


def test_methods_lists_names_and_options(call: Call) -> None:
    listed = call("methods").out
    assert "orca+pf" in listed
    assert max(map(len, listed.splitlines())) <= 80
    options = call("methods", "orca+pf").out
    assert "method.base.entropy_on = both" in options
    assert "head.prototypes = 5" in options


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "Out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "Out of memory"),
        (RuntimeError("[..] DefaultCPUAllocator: can't allocate memory: 9 bytes"), "Out of memory"),
        (RuntimeError("Could not determine home directory."), "A path begins with ~"),
    ],
)
def test_errors_that_a_person_can_mend_are_a_sentence(
    error: Exception, sentence: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protofission.cli.app", raising(error))
    done = call("demo")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"protofission: {sentence}")


@pytest.mark.parametrize(
    "words",
    [
        "Connection between the layers is no tensor",
        "this step does not allocate memory for x",
        "cannot find the home directory of the method",
    ],
)
def test_an_error_of_ours_is_no_bad_input_whatever_its_words(
    words: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protofission.cli.app", raising(RuntimeError(words)))
    with pytest.raises(RuntimeError, match=words):
        call("demo")


def raising(error: Exception) -> Callable[..., None]:
    def app(*_: object, **__: object) -> None:
        raise error

    return app


def test_a_split_is_shown_written_and_verified(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("split", "orca", "--out", "orca.json")
    assert shown.code == 0, shown.err
    assert "labeled: 465" in shown.out
    again = call("split", "orca.json")
    assert "orca.json is the split orca of digits, verified." in again.out
    text = (tmp_path / "orca.json").read_text()
    (tmp_path / "orca.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    other = call("split", "orca.json")
    assert other.code == 2
    assert other.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["split", "orca", "--set", "seed=-1"], "seed = -1 must be between 0 and 2^32 - 1."),
        (["embed", "digits", "--out", "s", "--seed", "-1"], "seed = -1 must be between 0"),
        (["fit", "labeled", "pool", "--out", "m", "--seed", "-1"], "seed = -1 must be between 0"),
        (["pretrain", "--preset", "digits", "--out", "r", "--seed", "-1"], "seed = -1 must be"),
        (["split", "ocra"], "Unknown split 'ocra'. Did you mean 'orca'?"),
        (["split", "orca", "--set", "ratio=0.5"], "Unknown key 'ratio'."),
        (
            ["split", "orca", "--dataset", "digit"],
            "Unknown dataset 'digit'. Did you mean",
        ),
        (["split", "ds3l"], "Class 0 (0) has 178 images, but"),
        (["split", "nothing.json"], "nothing.json cannot be read"),
        (["split", "orca", "--dataset", "cifar10", "--folder", "."], "CIFAR-10 is not in"),
        (["data", "fetch", "cifr"], "Did you mean 'cifar10'?"),
        (["data", "check", "nowhere"], "nowhere is not a folder"),
        (["predict", "nowhere", "x.png"], "nowhere does not exist: give a folder"),
        (["drift", "nowhere", "x.png"], "nowhere does not exist: give a folder"),
        (["show", "nowhere"], "nowhere does not exist: give a folder"),
        (["weights", "simclr-cifar10", "--channels", "-1"], "channels = -1: give 3 for colors"),
        (["weights", "simclr-cifar10", "--channels", "0"], "channels = 0: give 3 for colors"),
        (["weights", "simclr-cifar10", "--channels", f"{10**9}"], "or at most 1024"),
    ],
)
def test_verbs_refuse_in_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


EMBED = (
    *("embed", "\u732b", "--out", "\u72ac", "--weak", "0", "--strong", "0"),
    *("--encoder", "simclr-cifar10", "--processes", "1"),
)


def test_names_beyond_ascii_are_shown_by_any_terminal(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for place in ("c\xe4t", os.fsdecode(b"d\xff")):
        (tmp_path / "\u732b" / place).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "\u732b" / place / "\xfc.png")
    (tmp_path / "\u732b" / "c\xe4t" / "\xf6.png").write_bytes(b"no image")
    for arguments, words in (
        (("data", "check", "\u732b", "\u732b"), r"c\xe4t/\xfc.png is in the pool too"),
        (("data", "check", "\u732b"), r"c\xe4t/\xfc.png = d\udcff/\xfc.png"),
        (("report", "\u732b"), r"\u732b is no run, nor a folder of runs"),
        (("suite", "\u732b.yaml"), r"\u732b.yaml cannot be read as a suite"),
        (("split", "orca", "--out", "\u732b.json"), r"Written to \u732b.json."),
        (("methods", "\u732b"), "Unknown method"),
        (("train", "orca", "--out", "\u732b"), "holds other files, such as"),
        (EMBED, r"The store: \u72ac, 2 images"),  # said by a console of rich's
    ):
        shown = io.BytesIO()
        with monkeypatch.context() as patch:
            for name in ("stdout", "stderr"):
                stream = io.TextIOWrapper(shown, "ascii", "strict", write_through=True)
                patch.setattr(sys, name, stream)
            code = call(*arguments).code
            for name in ("stdout", "stderr"):
                getattr(sys, name).detach()
        said = " ".join(shown.getvalue().decode("ascii").split())
        assert words in said, said
        assert code in (0, 2)


def test_a_folder_is_checked_against_a_pool(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, colour in (("cat/a.png", 10), ("dog/b.png", 200), ("pool/c.png", 10)):
        path = tmp_path / ("labeled" if "/" in name and "pool" not in name else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 30), (colour, 0, 0)).save(path)
    (tmp_path / "labeled" / "cat" / "broken.jpg").write_bytes(b"not an image")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    done = call("data", "check", "labeled", "pool")
    assert done.code == 0, done.err
    assert re.search("2 images read from .*labeled.", done.out)
    assert "broken.jpg" in done.out
    assert "cat/a.png is in the pool too: c.png" in done.out


def test_a_long_value_is_not_repeated_whole(call: Call) -> None:
    said = call("show", "x" * 5000)
    assert said.code == 2
    assert len(said.err) < 2100
    assert said.err.startswith("protofission: xxx")
    assert " ... xxx" in said.err
