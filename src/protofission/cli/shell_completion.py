"""Scripts by which bash, zsh and fish complete the command line, and where shells find them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cyclopts import App

from protofission.core.errors import InputError, printable

Shell = Literal["bash", "zsh", "fish"]

MENDS: dict[Shell, list[tuple[str, str]]] = {
    "bash": [
        (  # a folder gets its slash, and a name with spaces is one
            'COMPREPLY=( $(compgen -f -- "${cur}") )',
            "local IFS=$'\\n'; compopt -o filenames 2>/dev/null; "
            'COMPREPLY=( $(compgen -f -- "${cur}") )',
        ),
        (  # a word is a verb only where one may stand: a folder may be called data, too
            'if [[ " $all_commands " =~ " $word " ]]; then',
            'if [[ "|$all_paths|" == *"|${cmd_path[*]}${cmd_path[0]:+ }$word|"* ]]; then',
        ),
        ("  local all_commands=", "  local all_paths='{paths}' all_commands="),
    ],
    "zsh": [],
    "fish": [
        (
            'if string match -q -- "* $word *" " $all_commands "',
            "if contains -- (string join ' ' $subcommands $word) (string split '|' '{paths}')",
        ),
    ],
}
"""Parts of the scripts that cyclopts makes, and their replacements; {paths} are the verbs, those of
groups after their names, with bars between."""
LOAD_COMPDEF = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
"""Makes zsh's completion ready, if nothing did so before."""


def completion_script(app: App, shell: Shell) -> str:
    """The script of a shell, to be sourced; zsh may also find it by its name in `fpath`."""
    script = app.generate_completion(prog_name="protofission", shell=shell).rstrip()
    paths = "|".join(_verbs(app))
    for lacking, mended in MENDS[shell]:
        script = script.replace(lacking, mended.replace("{paths}", paths))
    if shell == "zsh":
        name = re.findall(r"^(_\w+)\(\) \{", script, re.MULTILINE)[-1]
        script += (
            f'\n\nif [[ "$funcstack[1]" == {name} ]]; then\n  {name} "$@"\nelse\n'
            f"  {LOAD_COMPDEF}\n  compdef {name} protofission\nfi"
        )
    return f"{script}\n"


def _verbs(app: App, before: str = "") -> Iterator[str]:
    """The verbs of an app, and those of its groups after their names."""
    for name in app:
        if not name.startswith("-"):
            yield f"{before}{name}"
            yield from _verbs(app[name], f"{before}{name} ")


def completion_files(shell: Shell) -> tuple[Path, Path | None]:
    """The file of the script, and the one of the shell's start that loads it; fish needs none."""
    home = Path.home()
    match shell:
        case "bash":
            data = _folder("XDG_DATA_HOME", home / ".local" / "share")
            return data / "bash-completion" / "completions" / "protofission", home / ".bashrc"
        case "zsh":
            home = _folder("ZDOTDIR", home)
            return home / ".zsh" / "completions" / "_protofission", home / ".zshrc"
        case "fish":
            config = _folder("XDG_CONFIG_HOME", home / ".config")
            return config / "fish" / "completions" / "protofission.fish", None


def install_completion(app: App, shell: Shell) -> list[Path]:
    """Write the script to where new shells find it; return the files that were written.

    Raises:
        InputError: one of them cannot be written.
    """
    from protofission.system.plain_files import read_plain
    from protofission.system.whole_files import write_whole

    file, start = completion_files(shell)
    written = [file]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file.resolve(), completion_script(app, shell).encode())
        if start is not None:
            line = f"source {shlex.quote(str(file))}\n".encode()
            before = read_plain(start) if os.path.lexists(start) else b""
            if line not in before.splitlines(keepends=True):
                gap = b"" if not before or before.endswith(b"\n") else b"\n"
                write_whole(start.resolve(), before + gap + line)  # it may be a link
                written.append(start)
    except OSError as error:
        raise InputError(
            f"{printable(str(error.filename or file))} cannot be written "
            f"({error.strerror or error}): save what `protofission completion {shell}` prints."
        ) from None
    return written


def _folder(variable: str, usual: Path) -> Path:
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else usual
