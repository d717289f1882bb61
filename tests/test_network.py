"""Nothing is sent, looked up or written that the user did not ask for."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bundles import bundle_at
from pictures import picture
from protofission.cli import app
from protofission.cli import data as data_verbs
from small_workbenches import small_model
from verbs import command, environment

NETWORK = ("connect", "sendto", "sendmsg", "sendmmsg")
FILES = (
    "creat", "link", "linkat", "mkdir", "mkdirat", "mknod", "mknodat", "open", "openat", "openat2",
    "rename", "renameat", "renameat2", "rmdir", "symlink", "symlinkat", "truncate", "unlink",
    "unlinkat",
)  # fmt: skip
TINY = [
    "--set", "backbone.width=4",
    "--set", "recipe.epochs=1",
    "--set", "recipe.steps_per_epoch=1",
]  # fmt: skip
SERVERS = {"label", "serve"}
"""Verbs that run until they are told to stop."""
SMALL = [*TINY, "--set", "recipe.labeled_batch=16", "--set", "recipe.unlabeled_batch=16"]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> str:
    """strace, if it works here."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    log = tmp_path_factory.mktemp("strace") / "log"
    if subprocess.run([found, "-o", log, "true"], capture_output=True).returncode != 0:
        pytest.skip("strace may not trace processes here")
    return found


def calls(strace: str, arguments: list[str], home: Path, **variables: str) -> tuple[str, list[str]]:
    """What a command prints, and its system calls on the network and on files."""
    log = home / "calls"
    done = subprocess.run(
        [strace, "-f", "-yy", "-s", "512", "--seccomp-bpf", "-o", log,
         "-e", f"trace={','.join(f'?{name}' for name in (*NETWORK, *FILES))}", *arguments],
        cwd=home / "work", env=environment(home, **variables), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, log.read_text(errors="replace").splitlines()


def reached(lines: list[str]) -> set[str]:
    """The addresses of the internet that were connected or sent to, as ADDRESS PORT."""
    found = set()
    for line in lines:
        if re.match(rf"\d+ +({'|'.join(NETWORK)})\(", line):
            pattern = r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|AF_INET6, )"([^"]+)"'
            found |= {f"{address} {port}" for port, address in re.findall(pattern, line)}
    return found


def written(lines: list[str], cwd: Path) -> set[Path]:
    """The paths at which something was made, opened for writing, moved or removed."""
    found = set()
    for line in lines:
        call = re.match(rf"\d+ +({'|'.join(FILES)})\((.*)", line)
        if call is None or re.search(r"\) += -1 ", line):
            continue
        name, rest = call.groups()
        if name.startswith("open") and not re.search("O_WRONLY|O_RDWR|O_CREAT", rest):
            continue
        for folder, path in re.findall(r'(?:<([^>]*)>, )?"([^"]*)"', rest):
            found.add(Path(os.path.normpath(cwd / folder / path)))
    return found


def strays(lines: list[str], home: Path) -> list[str]:
    """What was written elsewhere than in the working folder and where the guide says."""
    own = home / "home"
    expected = [home / "work", home / "temporary", Path("/dev"), Path("/proc")]
    expected += [own / ".cache" / "protofission"]
    expected += [own / place / "matplotlib" for place in (".cache", ".config")]
    return sorted(
        str(path)
        for path in written(lines, home / "work")
        if path not in (own / ".cache", own / ".config")
        and not any(path.is_relative_to(folder) for folder in expected)
    )


def test_a_process_that_reaches_out_or_writes_elsewhere_is_seen(traced: str, tmp_path: Path):
    code = """
import os, socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
try:
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", ("2001:db8::1", 7))
except OSError:
    pass
try:
    socket.getaddrinfo("nobody.invalid", 80)
except OSError:
    pass
os.mkdir("../home/.stray")
folder = os.open("../home/.stray", os.O_RDONLY)
os.close(os.open("a", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
os.rename("../home/.stray/a", "../b")
open("/dev/null", "w").close()
open("../work/c", "w").close()
"""
    _, lines = calls(traced, [sys.executable, "-c", code], tmp_path)
    found = reached(lines)
    assert {"192.0.2.1 9", "2001:db8::1 7"} <= found
    assert any(each.endswith(" 53") for each in found)
    stray = str(tmp_path / "home" / ".stray")
    assert strays(lines, tmp_path) == sorted([stray, f"{stray}/a", str(tmp_path / "b")])


def test_onnxruntime_is_kept_from_reporting(traced: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    code = (
        "from protofission.system.optional_libraries import import_optional\n"
        "import_optional('onnxruntime', '', '')"
    )
    used = [sys.executable, "-c", code]
    _, lines = calls(traced, used, tmp_path / "quiet")
    assert strays(lines, tmp_path / "quiet") == []
    _, lines = calls(traced, used, tmp_path / "loud", ORT_DISABLE_TELEMETRY="0")
    if not strays(lines, tmp_path / "loud"):
        pytest.skip("this onnxruntime reports nothing, whatever it is told")


@pytest.mark.slow
def test_no_verb_reaches_the_network_or_writes_elsewhere(traced: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    bundle_at(work / "given")  # with its encoder beside it
    for number in range(40):
        picture(work / "labeled" / "ab"[number % 2] / f"{number}.png", number, side=8)
        picture(work / "pool" / f"{number}.png", 100 + number, side=8)
    options = ["recipe.epochs=1", "recipe.labeled_batch=8", "recipe.unlabeled_batch=8"]
    own = {"title": "Own", "data": ["store"], "seeds": 1, "methods": ["supervised"]}
    (work / "own.yaml").write_text(json.dumps({**own, "options": options}))
    encoder = ["--encoder", "given.safetensors", "--set", "size=8", "--processes", "1"]
    verbs = [
        ["--help"],
        ["methods", "orca+pf"],
        ["presets"],
        ["split", "orca", "--out", "split.json"],
        ["data", "check", "labeled", "pool"],
        ["demo", "--methods", "supervised", *TINY],
        ["pretrain", "--preset", "digits", "--out", "start", *SMALL],
        ["weights", "start", "--out", "start.safetensors"],
        ["train", "supervised", "--out", "runs/one", "--track", *SMALL],
        ["report", "runs", "--out", "report"],
        ["embed", "labeled", "--out", "store", *encoder],
        ["suite", "own.yaml", "--workers", "1"],
        ["fit", "labeled", "pool", "--out", "model", "--steps", "2", *encoder],
        ["predict", "model", "pool", "--out", "rows.csv", "--processes", "1"],
        ["show", "model"],
        ["drift", "model", "pool", "--processes", "1"],
        ["export", "model", "model.onnx", "--input", "features"],
        ["next", "model", "--n", "2", "--out", "next.csv"],
        ["labels", "model", "--out", "labels.csv", "--what", "all"],
        ["pack", "model", "model.zip"],
        ["completion", "zsh"],
        ["doctor", "--json"],
    ]
    assert {verb[0] for verb in verbs} == {*app} - {"--version", "-h", "push", *SERVERS}
    assert {name for name in data_verbs if not name.startswith("-")} == {"check", "fetch"}
    printed, lines = calls(traced, command(verbs), tmp_path)
    for verb, (code, said) in zip(verbs, json.loads(printed), strict=True):
        assert code == 0, (verb, said)
    assert reached(lines) == set()
    assert strays(lines, tmp_path) == []


def test_a_server_reaches_nobody_and_writes_nothing(traced: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    bundle_at(tmp_path / "work" / "model")
    code = """
import subprocess, sys
command = [sys.executable, "-m", "protofission", "serve", "model", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    print(server.stdout.readline())
    server.terminate()
    assert server.wait(60) == 143
"""
    printed, lines = calls(traced, [sys.executable, "-c", code], tmp_path)
    assert "POST /predict" in printed
    assert reached(lines) == set()
    assert strays(lines, tmp_path) == []


def test_the_workbench_is_asked_by_this_machine_alone_and_writes_beside_the_model(
    traced: str, tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn")
    model = small_model(tmp_path / "work")
    before = {path: path.read_bytes() for path in (tmp_path / "work").rglob("*.png")}
    code = """
import subprocess, sys, urllib.request
command = [sys.executable, "-m", "protofission", "label", "model", "--no-browser"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    address = server.stdout.readline().split()[-1]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.open(address).read()
    print(browser.open(address.partition("?")[0] + "thumb/3").status)
    server.terminate()
    assert server.wait(60) == 143
"""
    printed, lines = calls(traced, [sys.executable, "-c", code], tmp_path)
    assert printed.split() == ["200"]
    assert all(re.match(r"127\.0\.0\.1 ", each) for each in reached(lines))
    assert strays(lines, tmp_path) == []
    work = tmp_path / "work"
    made = {path for path in written(lines, work) if path.is_relative_to(work)}
    assert all(path.is_relative_to(model / "workbench") for path in made)
    assert {path: path.read_bytes() for path in work.rglob("*.png")} == before


@pytest.mark.slow
def test_two_processes_talk_on_this_machine_alone(traced: str, tmp_path: Path) -> None:
    train = [sys.executable, "-m", "protofission", "train", "supervised", "--out", "run"]
    _, lines = calls(traced, [*train, "--processes", "2", *SMALL], tmp_path)
    found = reached(lines)
    servers = {each for each in found if each.endswith(" 53")}
    assert found - servers  # they do talk
    assert all(re.match(r"127\.|::1 |::ffff:127\.", each) for each in found - servers)
    # torch asks for the name of the address at which they meet, which is this machine's own
    questions = [line for line in lines if re.search(r" send\w+\(\d+<UDP.*:53\]>", line)]
    assert bool(questions) == bool(servers)
    assert all(r"\003127\7in-addr\4arpa" in line for line in questions)
    assert strays(lines, tmp_path) == []
