"""The short form of the fault campaign, and that the campaign sees what it looks for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAMPAIGN = Path(__file__).with_name("chaos")
KINDS = {"kill", "stop", "full disk", "damage", "garbage", "command line"}
SHORT = (
    *("--trials", "26", "--seed", "18", "--subjects"),
    *("train", "train store", "embed", "predict", "resume store", "predict half", "embed again"),
    *("show", "report", "split file"),
)


def called(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )


@pytest.mark.slow
def test_a_short_campaign_breaks_no_promise(tmp_path: Path) -> None:
    done = called(CAMPAIGN, *SHORT, "--out", tmp_path / "out")
    assert done.returncode in (0, 1), done.stderr
    results: list[dict[str, Any]] = json.loads((tmp_path / "out" / "results.json").read_text())
    broken = [r for r in results if r["outcome"] not in ("same bytes", "refused", "done")]
    assert not broken, json.dumps(broken, indent=1)
    assert done.returncode == 0
    assert len(results) == 26
    assert {result["kind"] for result in results} == KINDS
    assert sum(result["kills"] for result in results) >= 4
    assert sum(result["used"] for result in results) >= 2, "no kill counted"
    assert (tmp_path / "out" / "table.md").read_text().startswith("| fault | tried |")


@pytest.mark.slow
def test_the_campaign_sees_what_was_planted(tmp_path: Path) -> None:
    done = called(CAMPAIGN / "planted.py", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    outcomes = {name: outcome for name, (outcome, _, _) in found.items()}
    assert outcomes == {
        "nothing": "same bytes",
        "sentence": "refused",
        "traceback": "traceback",
        "hang": "hang",
        "other-bytes": "different",
        "child": "left over",
        "litter": "left over",
        "code": "rough",
        "remembers": "same bytes",
        "forgets": "same bytes",
    }
    kills, used = zip(*((kills, used) for _, kills, used in found.values()), strict=True)
    assert found["remembers"][2] > 0
    assert found["forgets"][1] > 0
    assert found["forgets"][2] == 0, "a life that began anew did not go on"
    assert sum(kills) > sum(used)
