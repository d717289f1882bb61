"""The doctor: requirements as they are declared, and sentences for what is wrong or slow."""

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from conftest import Call
from protofission.triage import doctor
from protofission.triage.doctor import (
    Rate,
    Requirement,
    best_rate,
    cache_facts,
    free_bytes,
    rate_findings,
    read_requirements,
    storage_findings,
    thread_findings,
)

DECLARED = [
    "numpy>=2",
    "no-such-package>=1.5",
    "torch>=999; python_version > '3'",
    "pytest>=1; extra == 'dev'",
    "moto[server]>=5; extra == 'dev-scale'",
    "ray>=2; extra == 'all'",
    'pyyaml>=6.0; extra == "web"',
    "no-such-engine>=1.20; extra == 'web'",
]


def test_requirements_are_read_and_looked_up() -> None:
    required, extras = read_requirements(DECLARED)
    assert [(one.name, one.least, one.met) for one in required] == [
        ("numpy", "2", True),
        ("no-such-package", "1.5", False),
        ("torch", "999", False),
    ]
    assert required[0].found == metadata.version("numpy")
    assert required[1].found is None
    assert list(extras) == ["web"]
    assert [one.met for one in extras["web"]] == [True, False]


@pytest.mark.parametrize(
    ("found", "least", "met"),
    [
        ("2.10.1", "2.9", True),
        ("2.9", "2.10", False),
        ("2.13.0+cpu", "2.13", True),
        ("2", "2.0.0", True),
        ("1.99", "2", False),
        ("3.0.0rc1", "3", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(found: str, least: str, met: bool) -> None:
    assert Requirement("x", least, found).met is met


THREADS = {
    "processors": 4,
    "processors of the machine": 8,
    "torch threads": 4,
    "load": 1.0,
    "OMP_NUM_THREADS": None,
    "MKL_NUM_THREADS": None,
    "OMP_WAIT_POLICY": "PASSIVE",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        (
            {"torch threads": 1, "OMP_NUM_THREADS": "1"},
            "torch uses 1 of 4 processors (OMP_NUM_THREADS = 1): unset it",
        ),
        (
            {"torch threads": 1, "MKL_NUM_THREADS": "1"},
            "torch uses 1 of 4 processors (MKL_NUM_THREADS = 1): unset it",
        ),
        ({"torch threads": 2}, None),  # as torch does where a core is two processors
        ({"torch threads": 8}, "torch uses 8 threads on 4 processors"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY is ACTIVE"),
        ({"load": 30.0}, "30.0 processes want the 8 processors"),
        ({"load": None}, None),
    ],
)
def test_threads_that_make_things_slow_are_named(
    change: dict[str, object], words: str | None
) -> None:
    found = thread_findings({**THREADS, **change})
    assert len(found) == (words is not None)
    assert all(words is not None and words in sentence for sentence in found)


def test_a_full_disk_and_a_large_cache_are_named(tmp_path: Path) -> None:
    (tmp_path / "cache" / "below").mkdir(parents=True)
    (tmp_path / "cache" / "below" / "a").write_bytes(bytes(1000))
    (tmp_path / "cache" / "b").write_bytes(bytes(24))
    facts = cache_facts(tmp_path / "cache")
    assert (facts["files"], facts["bytes"]) == (2, 1024)
    assert free_bytes(tmp_path / "not" / "there") == pytest.approx(free_bytes(tmp_path), rel=0.05)
    assert storage_findings(facts, {"/": 10**12}) == []
    full, large = storage_findings({**facts, "bytes": 10**11}, {"/": 10**12, "/tmp": 10**8})
    assert "/tmp has 0.1 GB free" in full
    assert "The cache has 100 GB" in large


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    facts = cache_facts(tmp_path / "file" / "cache")
    assert not facts["writable"]
    (found,) = storage_findings(facts, {"/": 10**12})
    assert f"{tmp_path}/file/cache cannot be written" in found
    assert "XDG_CACHE_HOME" in found


def test_slow_rates_and_a_missing_engine_are_named() -> None:
    rates = [
        Rate("decoding", "images/s", 39.0, 100.0),
        Rate("encoding", "images/s", 41.0, 100.0),
        Rate("files", "files/s", 1.0),
        Rate("other", "images/s", None, 100.0),
    ]
    (slow,) = rate_findings(rates, {})
    assert "Slow: decoding at 39 images/s, where this machine should reach 100" in slow
    missing = {"encoder": (Requirement("onnxruntime", "1.28", None),)}
    (engine,) = rate_findings(rates[1:], missing)
    assert 'pip install "protofission[encoder]"' in engine


def test_the_fastest_of_several_calls_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, *(0.0, 0.0, 0.4), *(0.5, 1.0, 1.1), *(1.2, 2.0, 2.5), 9.0])
    monkeypatch.setattr(doctor.time, "perf_counter", lambda: next(times))
    assert best_rate(lambda: None, 3.0, seconds=5.0) == pytest.approx(30.0)


def test_the_verb_says_what_is_missing_and_how_to_get_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_declared", lambda: DECLARED)
    done = call("doctor", "--no-speed")
    assert done.code == 1  # a requirement is missing
    assert "extra web: lacks no-such-engine\n" in done.out
    assert 'such as web: pip install "protofission[web]"' in done.out
    assert 'no-such-package is missing: pip install "no-such-package>=1.5".' in done.out
    told = call("doctor", "--no-speed", "--json")
    assert told.code == 1
    assert json.loads(told.out)["result"]["well"] is False
    monkeypatch.setattr(doctor, "_declared", lambda: DECLARED[:1])
    assert call("doctor", "--no-speed").code == 0


def test_all_fits_a_terminal_of_eighty_columns(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = [f"no-such-package-{number}>=1; extra == 'web'" for number in range(20)]
    monkeypatch.setattr(doctor, "_declared", lambda: extra)
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("doctor", "--no-speed").out.splitlines()
    assert sum("no-such-package-" in line for line in lines) > 5
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


def test_a_library_that_cannot_be_imported_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "protofission.triage.doctor")
    monkeypatch.setitem(sys.modules, "torch", None)
    done = call("doctor")
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"protofission: torch cannot be imported \(.*\): install .*\.\n", done.err)


def test_every_rate_is_measured() -> None:
    rates = doctor.measure_rates()
    assert all(rate.value is None or rate.value > 0 for rate in rates)
    assert rates[0].value is not None
    assert {rate.unit for rate in rates} == {"GFLOP/s", "images/s", "files/s"}
