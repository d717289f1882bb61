"""Completion in real shells: what a user gets who presses TAB."""

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import get_args

import pytest

from protofission.cli import DATA, app, known_names
from protofission.cli.shell_completion import Shell, completion_script, install_completion
from protofission.data.datasets import DATASETS
from protofission.data.readers.official_datasets import OFFICIAL_DATASETS
from protofission.methods import METHODS
from protofission.training.presets import PRESETS

CASES = {
    "protofission fi": {"fit"},
    "protofission fit --qual": {"--quality"},
    "protofission fit --quality ": {"fast", "good", "best"},
    "protofission data fe": {"fetch"},
    "protofission suite table1 --tier f": {"features"},
    "protofission doctor --js": {"--json"},
    "protofission train orc": {"orca", "orca+pf"},
    "protofission methods orca --preset fix": {"fixmatch/cifar10", "fixmatch/cifar100"},
    "protofission data fetch mn": {"mnist"},
    "protofission fit data --qual": {"--quality"},  # a folder has the name of a verb
    "protofission data check demo --js": {"--json"},
}
"""What is typed, and the words that complete it."""
TYPED = {
    "protofission fi": "protofission fit ",
    "protofission fit --qual": "protofission fit --quality ",
    "protofission data fe": "protofission data fetch ",
    "protofission fit data --qual": "protofission fit data --quality ",
    "protofission fit data/in": "protofission fit data/inner/",
    "protofission predict data two": r"protofission predict data two\ words/",
}
"""What is typed, and what stands there after TAB; paths are those of `folders`."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data/inner/most", "two words/of"):
        (tmp_path / "work" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")


def shell_of(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_bash_completes_verbs_options_and_values(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(completion_script(app, "bash"))
    code = """
        source ./script
        read -r -a found < <(complete -p protofission)
        while IFS= read -r line; do
            read -r -a COMP_WORDS <<< "$line"
            [[ "$line" == *" " ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
            "${found[2]}" protofission
            echo "${COMPREPLY[*]}"
        done
    """
    done = subprocess.run(
        [shell_of("bash"), "--norc", "-c", code],
        input="".join(f"{line}\n" for line in CASES),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stderr == ""
    assert [set(line.split()) for line in done.stdout.splitlines()] == list(CASES.values())


def test_fish_completes_verbs_options_and_values(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(completion_script(app, "fish"))
    (tmp_path / "work").mkdir()
    for line, words in CASES.items():
        done = subprocess.run(
            [shell_of("fish"), "--no-config", "-c", f"source ../script; complete -C '{line}'"],
            capture_output=True,
            text=True,
            cwd=tmp_path / "work",
            env={**os.environ, "HOME": str(tmp_path)},
            check=True,
        )
        assert {told.partition("\t")[0] for told in done.stdout.splitlines()} == words, line


class Terminal:
    """A shell in a terminal, which is typed to."""

    def __init__(self, command: list[str]) -> None:
        self.process, self.handle = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="dumb", COLUMNS="200")
            os.execv(command[0], command)
        self.told = b""

    def type(self, text: str, wanted: str) -> str:
        """Type, and wait for a text; all that was told since."""
        self.told = b""
        os.write(self.handle, text.encode())
        end = time.monotonic() + 60
        while wanted.encode() not in self.told:
            assert time.monotonic() < end, self.told
            if select.select([self.handle], [], [], 0.1)[0]:
                self.told += os.read(self.handle, 65536)
        return self.told.decode()

    def close(self) -> None:
        os.close(self.handle)  # the shell gets SIGHUP
        os.waitpid(self.process, 0)


@pytest.mark.parametrize(("shell", "options"), [("bash", ["-i"]), ("zsh", ["-d", "-i"])])
@pytest.mark.usefixtures("folders")
def test_a_shell_completes_what_is_typed_once_it_is_installed(
    shell: Shell, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell_of(shell)
    for name in ("HOME", "ZDOTDIR", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / f".{shell}rc").write_text("PS1='ready> '")  # without an end of line
    install_completion(app, shell)
    terminal = Terminal([path, *options])
    try:
        terminal.type("", "ready> ")
        for typed, completed in TYPED.items():
            terminal.type(f"\x15{typed}\t", completed)  # Ctrl-U empties the line before
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_an_installation_is_done_once_and_keeps_what_is_there(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZDOTDIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "dotfiles").write_text("alias a=b")
    start = tmp_path / f".{shell}rc"
    start.symlink_to(tmp_path / "dotfiles")
    first = install_completion(app, shell)
    assert first[0].read_text() == completion_script(app, shell)
    again = install_completion(app, shell)
    assert again == first[:1]
    assert start.is_symlink()
    lines = start.read_text().splitlines()
    assert lines[0] == "alias a=b"
    assert len(lines) == (1 if shell == "fish" else 2)


def test_every_verb_is_in_every_script() -> None:
    verbs = [verb for verb in app if not verb.startswith("-")] + [verb.__name__ for verb in DATA]
    for shell in ("bash", "zsh", "fish"):
        script = completion_script(app, shell)  # type: ignore[arg-type]
        assert [verb for verb in verbs if verb not in script] == []


def test_the_names_that_are_completed_are_those_there_are() -> None:
    there = {
        known_names.KnownMethod: METHODS,
        known_names.KnownPreset: PRESETS,
        known_names.KnownDataSet: DATASETS,
        known_names.KnownOfficialDataSet: OFFICIAL_DATASETS,
    }
    for known, names in there.items():
        assert get_args(known) == tuple(names)
