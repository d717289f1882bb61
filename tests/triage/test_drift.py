"""Drift: the same images show none, others do, and unreadable ones are counted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bundles import bundle_at
from conftest import Call
from pictures import encoded, picture, write
from protofission.core.errors import InputError
from protofission.core.score_drift import drift_test
from protofission.triage.bundle import Bundle
from protofission.triage.drift import ClassShare, drift
from protofission.triage.predict import predict
from protofission.triage.prediction_table import Row, read_rows


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(40):
        picture(folder / f"{number}.png", number)
    return folder


def calibrated_on(photos: Path, folder: Path, card: dict[str, object]) -> tuple[Path, list[Row]]:
    """A bundle whose held-out images are the photos, and what it says of them."""
    bundle = bundle_at(folder)
    predict(folder, [photos], folder.with_name("rows.jsonl"))
    rows = list(read_rows(folder.with_name("rows.jsonl")))
    again = Bundle.of(
        bundle.calibrated_model,
        bundle.class_names,
        bundle.encoder_spec,
        bundle.encoder_facts,
        [row.id_score for row in rows],
        card,
    )
    again.save(folder)
    return folder, rows


def test_the_same_images_show_no_drift(photos: Path, tmp_path: Path):
    card = {"data": {"labeled": {"cat": 30, "=dog, 2": 10}}}
    model, rows = calibrated_on(photos, tmp_path / "model", card)
    write(tmp_path / "broken.png", b"x")
    found = drift(model, [photos, tmp_path / "broken.png"])
    assert found.scores.verdict == "no drift seen"
    assert found.scores.statistic == 0
    assert found.scores == drift_test(
        Bundle.load(model).calibration, np.float32([row.id_score for row in rows]), 0.0
    )
    accepted = [row.class_name for row in rows if row.decision == "accept"]
    assert found.classes == tuple(
        ClassShare(name, share, accepted.count(name), len(accepted))
        for name, share in (("cat", 0.75), ("=dog, 2", 0.25))
    )
    assert found.errors == 1
    words = [found.scores.sentence(), found.scores.rejections(), "1 image cannot be read."]
    assert found.lines()[:3] == words
    assert len(found.lines()) == 5
    assert ClassShare("cat\n", 0.75, 1, 1).line() == (
        "cat\\n: 1 of 1 accepted image (100 %), 75 % of the labeled ones."
    )
    assert ClassShare("cat", None, 20, 1200).line() == "cat: 20 of 1,200 accepted images (1.7 %)."


def test_other_images_show_drift(photos: Path, tmp_path: Path):
    model, _ = calibrated_on(photos, tmp_path / "model", {"data": "of another kind"})
    for number in range(40):  # half of the known ones at least are on one side of their score
        write(tmp_path / "grey" / f"{number}.png", encoded(np.full((8, 8, 3), 90, np.uint8)))
    marks: list[tuple[int, int]] = []
    found = drift(model, [tmp_path / "grey"], progress=lambda *mark: marks.append(mark))
    assert found.scores.verdict == "drift"
    assert found.lines()[0].startswith("Drift: ")
    assert all(share.labeled is None for share in found.classes)
    assert marks == [(0, 40), (40, 40)]


def test_images_that_are_all_broken_are_refused(photos: Path, tmp_path: Path):
    model, _ = calibrated_on(photos, tmp_path / "model", {})
    with pytest.raises(
        InputError, match=r"^1 image cannot be read, and there are no others \(not "
    ):
        drift(model, [write(tmp_path / "broken.png", b"x")])


def test_a_model_without_held_out_scores_has_nothing_to_compare_with(photos: Path, tmp_path: Path):
    bundle = bundle_at(tmp_path / "model")
    replace(bundle, calibration=np.zeros(0, np.float32)).save(tmp_path / "model")
    with pytest.raises(InputError, match="keeps no scores of held-out images"):
        drift(tmp_path / "model", [photos])


def test_one_image_is_too_few_and_the_words_fit_eighty_columns(
    photos: Path, tmp_path: Path, call: Call
):
    bundle_at(tmp_path / "model")
    for images, verdict in (
        ([photos / "0.png"], "Too few to tell: 1 new image beside"),
        (
            [photos],
            "Drift: ",
        ),
    ):
        said = call("drift", tmp_path / "model", *images, "--processes", 1)
        assert said.code == 0
        assert said.out.startswith(verdict)
        assert max(map(len, said.out.splitlines())) <= 80
