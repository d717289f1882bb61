"""The wheel, as a user gets it: built, installed in an empty environment, used elsewhere."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

IMAGES = """
import random
from pathlib import Path
from PIL import Image, ImageDraw

random.seed(0)

def draw(path, kind):
    image = Image.new("RGB", (48, 48), tuple(random.randrange(200, 256) for _ in range(3)))
    x, y = random.randrange(4, 16), random.randrange(4, 16)
    pen, box = ImageDraw.Draw(image), (x, y, x + 26, y + 26)
    ink = tuple(random.randrange(0, 90) for _ in range(3))
    {"disk": pen.ellipse, "square": pen.rectangle, "line": pen.line}[kind](box, fill=ink)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image.save(path)

for number in range(12):
    for kind in ("disk", "square"):
        draw(f"labeled/{kind}/{number}.png", kind)
for number in range(30):
    draw(f"pool/{number}.png", ("disk", "square", "line")[number % 3])
    draw(f"new/{number}.png", ("disk", "square", "line")[number % 3])
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of this repository; what it prints."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        check=False,
    )
    unreachable = ("Could not find a version", "No matching distribution", "ConnectionError")
    if done.returncode and any(words in done.stderr for words in unreachable):
        pytest.skip("no index of packages can be reached from here")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository."""
    place = tmp_path_factory.mktemp("wheel")
    if find_spec("build") is not None:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", place, project, cwd=place)
    else:
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", place, project, cwd=place)
    (found,) = place.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_with_its_pages_and_weights(wheel: Path, project: Path) -> None:
    source = project / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "protofission").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == wanted


@pytest.mark.slow
def test_the_source_distribution_holds_what_is_tracked_wherever_the_clone_lies(
    project: Path, tmp_path: Path
) -> None:
    if not (project / ".git").exists():
        pytest.skip("what is tracked is not known here")
    tracked = run("git", "ls-files", cwd=project).splitlines()
    for name in (".venv-other/lib/x.py", "demo/x.png"):  # .gitignore does not help everywhere
        (tmp_path / "clone" / name).parent.mkdir(parents=True)
        (tmp_path / "clone" / name).touch()
    for name in tracked:
        if name != ".gitignore" and (project / name).exists():
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project / name, tmp_path / "clone" / name)
    run(sys.executable, "-m", "build", "--sdist", "-o", tmp_path / "dist", "clone", cwd=tmp_path)
    (found,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(found) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    unwanted = {".dockerignore", ".gitignore"} | {n for n in tracked if n.startswith(".ci/")}
    assert held == {name for name in tracked if (project / name).exists()} - unwanted


@pytest.mark.slow
def test_fit_and_predict_work_in_an_empty_environment(
    wheel: Path, project: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "environment", cwd=tmp_path)
    binary = tmp_path / "environment" / "bin"
    constraints = ("-c", project / "constraints.txt")
    run(binary / "pip", "install", "-q", *constraints, f"{wheel}[encoder]", cwd=tmp_path)
    home = "import protofission; print(protofission.__file__)"
    assert str(tmp_path) in run(binary / "python", "-c", home, cwd=tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    run(binary / "python", "-c", IMAGES, cwd=work)
    command, quick = binary / "protofission", ("--quality", "fast", "--steps", "20", "--folds", "2")
    told = run(command, "fit", "labeled", "pool", "--out", "model", *quick, "--json", cwd=work)
    assert json.loads(told)["result"]["classes"] == ["disk", "square"]
    run(command, "predict", "model", "new", "--out", "new.csv", cwd=work)
    with (work / "new.csv").open() as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    assert len(rows) == 30
    shapes = {name: row["class"] for name, row in rows.items() if int(Path(name).stem) % 3 < 2}
    right = sum(("disk", "square")[int(Path(n).stem) % 3] == found for n, found in shapes.items())
    assert right >= 18  # of 20
    found = json.loads(run(command, "doctor", "--no-speed", "--json", cwd=work))["result"]
    assert all(one["found"] for one in (*found["requirements"], *found["extras"]["encoder"]))
    assert not any(one["found"] for one in found["extras"]["ray"])
