"""The Dockerfile, as far as it can be checked without docker: its files, its user, its command."""

import ast
import json
import re
from pathlib import Path

from conftest import Call


def instructions(project: Path) -> list[tuple[str, str]]:
    text = (project / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_what_is_copied_is_there_and_not_ignored(project: Path) -> None:
    kept = (project / ".dockerignore").read_text().split()
    copied = [rest.split()[:-1] for word, rest in instructions(project) if word == "COPY"]
    sources = [name for names in copied for name in names if not names[0].startswith("--")]
    assert {"pyproject.toml", "src"} <= set(sources)
    for name in sources:
        assert (project / name).exists()
        assert f"!{name}" in kept


def test_the_server_runs_as_a_user_and_its_command_is_one(project: Path, call: Call) -> None:
    found = instructions(project)
    words = [word for word, _ in found]
    assert words.index("USER") > max(at for at, word in enumerate(words) if word == "RUN")
    assert dict(found)["USER"].isdigit()
    assert dict(found)["USER"] != "0"
    program, *verb = json.loads(dict(found)["ENTRYPOINT"])
    assert program == "protofission"
    # It is understood, and refused only because there is no model here.
    done = call(*verb, *json.loads(dict(found)["CMD"]), "--port", "0")
    assert (done.code, "/model does not exist" in done.err) == (2, True)
    (extras,) = re.findall(r"whl\)\[([\w,]+)\]", (project / "Dockerfile").read_text())
    known = (project / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in known for extra in extras.split(","))


def test_the_check_of_health_is_python(project: Path) -> None:
    (command,) = re.findall(r"CMD\s+(\[.*\])", dict(instructions(project))["HEALTHCHECK"])
    program, flag, code = json.loads(command)
    assert (program, flag) == ("python", "-c")
    assert "/health" in code
    ast.parse(code)
