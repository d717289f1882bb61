"""The verbs of the shell and the machine: completion, doctor."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from protofission.cli.arguments import Flag
from protofission.cli.json_results import Json, result_text
from protofission.cli.refusals import print_error
from protofission.cli.shell_completion import Shell, completion_script, install_completion
from protofission.core.errors import printable

if TYPE_CHECKING:
    from protofission.triage.doctor import Examination


def completion(shell: Shell, /, *, install: Flag = False) -> None:
    """Print a script by which a shell completes verbs, options and their values.

    For example:

        source <(protofission completion bash)
        protofission completion zsh --install
        protofission completion fish | source

    Parameters
    ----------
    shell
        bash, zsh or fish.
    install
        Write the script to where new shells find it, for bash and zsh with a line in ~/.bashrc or
        ~/.zshrc that loads it; the files are named.
    """
    from protofission.cli import app

    if install:
        files = " and ".join(printable(str(file)) for file in install_completion(app, shell))
        print(f"Written: {files}. It works in new shells.")
    else:
        print(completion_script(app, shell), end="")


def doctor(*, no_speed: Flag = False, json: Json = False) -> None:
    """Examine this installation: versions, extras, threads, cache, disk, speed, what is slow.

    Exits with code 1 if a package that is required is missing or too old. Nothing is changed or
    sent; rates are measured in a few seconds.

    For example:

        protofission doctor
        protofission doctor --no-speed
        protofission doctor --json > doctor.json

    Parameters
    ----------
    no_speed
        Measure no rates.
    """
    try:
        from protofission.triage.doctor import examine
    except ImportError as error:  # of what every verb needs
        print_error(
            f"{error.name} cannot be imported ({error}): install protofission again, which brings "
            "what is missing."
        )
        sys.exit(1)
    found = examine(measure=not no_speed)
    print(
        result_text("doctor", {"well": found.well, **asdict(found)})
        if json
        else "\n".join(doctor_lines(found))
    )
    if not found.well:
        sys.exit(1)


def doctor_lines(found: Examination) -> list[str]:
    """An examination as lines of text for this terminal, with what is wrong at the end."""
    from protofission.triage.doctor import install_line
    from protofission.triage.one_screen import wrap_line

    threads = {name: value for name, value in found.threads.items() if value is not None}
    lines = [
        *(f"{name}: {value}" for name, value in found.versions.items()),
        "",
        *(f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}"
          for name, value in threads.items()),
        f"free memory: {found.memory_free / 1e9:.1f} GB",
        f"accelerators: {', '.join(found.accelerators) or 'none, all is computed by processors'}",
        f"cache: {found.cache['folder']}, {found.cache['files']:,} files, "
        f"{found.cache['bytes'] / 1e6:,.0f} MB",
        *(f"free disk: {folder}, {free / 1e9:.1f} GB" for folder, free in found.disk.items()),
        "",
    ]  # fmt: skip
    for extra, wanted in found.extras.items():
        missing = [one.name for one in wanted if not one.met]
        lines.append(f"extra {extra}: {'lacks ' + ', '.join(missing) if missing else 'installed'}")
    lines.append(
        f"to get an extra, such as web: {install_line('web')}"
        if found.extras
        else "extras: not known, protofission is not installed as a package"
    )
    for rate in found.rates:
        value = "not measured" if rate.value is None else f"{rate.value:,.0f} {rate.unit}"
        expected = "" if rate.expected is None else f", expected about {rate.expected:,.0f}"
        lines.append(f"{rate.name}: {value}{expected}")
    lines += ["", *(found.findings or ("All is well.",))]
    columns = shutil.get_terminal_size().columns
    return [wrap_line(printable(line), columns) for line in lines]
