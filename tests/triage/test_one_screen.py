"""`show` and `drift` fit 24 lines of 80 columns, whatever the number of classes."""

from pathlib import Path

import numpy as np
import pytest

from conftest import Call
from protofission.core.score_drift import drift_test
from protofission.triage.drift import ClassShare, DriftReport
from protofission.triage.one_screen import SCREEN_LINES, fit_screen, wrap_line
from small_bundles import bundle_of

SENTENCE = "The threshold keeps 95 % of known images, between 90 and 98 % for this number of them. "


def card_of(names: tuple[str, ...]) -> dict[str, object]:
    """A card like that of a fit, with tables and sentences for each class."""
    counts = {name: 50 - place % 40 for place, name in enumerate(names)}
    return {
        "data": {"labeled": counts, "pool": 5000, "findings": [f"{name}: odd" for name in names]},
        "training": {"options": {f"option {i}": i for i in range(12)}, "choice": 2 * SENTENCE},
        "calibration": {"guarantee": 2 * SENTENCE, "accuracy on held-out images": 0.912},
        "estimates": {"sub-classes": {name: {"number": 2} for name in names}},
    }


@pytest.mark.parametrize("number", [3, 300])
@pytest.mark.parametrize("letters", [0, 200])
def test_show_fits_one_screen_and_all_is_everything(
    number: int, letters: int, tmp_path: Path, call: Call
) -> None:
    names = tuple(f"class {place} {'x' * letters}".strip() for place in range(number))
    bundle = bundle_of(names=names, card=card_of(names))
    bundle.save(tmp_path / "model")
    said = call("show", tmp_path / "model")
    assert said.code == 0
    assert len(said.out.splitlines()) < 24
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.out.startswith(f"A model of {number} known classes")
    text = " ".join(said.out.split())
    assert "accuracy on held-out images: 0.912" in text
    assert "--all shows everything." in text
    if not letters:
        fewest = (
            "class 2 48, class 1 49, class 0 50." if number == 3 else "class 39 11, class 79 11"
        )
        assert f"Classes and their labeled images, fewest first: {fewest}" in text
        assert (" more." in text) == (number == 300)
    whole = call("show", tmp_path / "model", "--all")
    assert len(whole.out.splitlines()) > 2 * number
    assert " ".join(" ".join(bundle.card_lines()).split()) == " ".join(whole.out.split())


def test_a_card_that_says_little_is_shown_whole() -> None:
    lines = bundle_of(card={"notes": ["a", "b"], "mine": {"n": 1}}).card_screen()
    assert lines[-4:] == ["Classes: cat, dog, cow.", "Mine, n: 1", "Notes: a", "Notes: b"]


@pytest.mark.parametrize("number", [3, 300])
def test_drift_fits_one_screen_with_the_classes_that_changed_most(number: int) -> None:
    found = [0] * number
    found[1], found[number - 1] = 700, 300
    shares = tuple(
        ClassShare(f"class {i} {'x' * 300}", 1 / number, found[i], 1000) for i in range(number)
    )
    scores = np.random.default_rng(0).normal(size=1000)
    report = DriftReport(drift_test(scores[:500], scores[500:] + 1, 0.0), shares, errors=3)
    lines = report.screen()
    assert sum(len(wrap_line(line, 80).splitlines()) for line in lines) <= SCREEN_LINES
    assert max(len(wrapped) for line in lines for wrapped in wrap_line(line, 80).splitlines()) <= 80
    assert lines[:3] == report.lines()[:3]
    assert lines[3].startswith("class 1 xxx")
    assert "700 of 1,000 accepted images" in lines[3]
    kept = len(lines) - 4
    if number == 300:
        assert lines[4].startswith("class 299 xxx")
        assert lines[-1] == f"And {300 - kept} more classes that changed less: --all lists them."
        assert kept >= 5
    else:
        assert len(lines) == 6
    assert len(report.lines()) == 3 + number


def test_a_screen_is_filled_to_its_last_line() -> None:
    rows = [str(number) for number in range(30)]
    assert fit_screen(["head"], rows[:21], "{} more") == ["head", *rows[:21]]
    assert fit_screen(["head"], rows[:22], "{} more") == ["head", *rows[:20], "2 more"]
    assert fit_screen(["head", ""], ["x " * 60] * 12, "{} more")[-1] == "3 more"
