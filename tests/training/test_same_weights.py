"""Every method trains to the weights that it had before the code was rearranged.

`same_weights.json` was written at the commit before the package became folders, by `python
tests/training/test_same_weights.py`. Other machines round differently, hence the tolerance; two
steps are few enough that no decision flips for it.
"""

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from protofission.core.records import total
from protofission.core.threads import one_thread
from protofission.methods import METHODS
from protofission.training.loop import train
from protofission.training.state import start
from runs import digits, small

FILE = Path(__file__).with_name("same_weights.json")
STEPS = 2


def sketch(name: str) -> dict[str, Any]:
    """Losses of two steps on the digits, and the model after them: lengths and directions."""
    experiment, data = small(name, "recipe.trainable_stages=none"), digits()
    with one_thread():
        state = start(experiment, data.training, data.augmentations)
        reports = islice(train(state, experiment, data.training, data.augmentations), STEPS)
        losses = [float(total(report.terms)) for report in reports]
    tensors = state.tensors()
    keys = hashlib.sha256("\n".join(sorted(tensors)).encode()).hexdigest()
    model = [tensors[key].double().flatten() for key in sorted(tensors) if key.startswith("model.")]
    return {
        "losses": losses,
        "keys": keys,
        "lengths": [round(float(tensor.norm()), 6) for tensor in model],
        "projections": [
            round(float(tensor @ torch.arange(len(tensor)).double().cos()), 6) for tensor in model
        ],
    }


@pytest.mark.parametrize("name", json.loads(FILE.read_text()))
def test_weights_are_those_of_before(name: str) -> None:
    before, now = json.loads(FILE.read_text())[name], sketch(name)
    assert len(now["losses"]) == STEPS
    assert now["keys"] == before["keys"]
    assert now["losses"][0] == pytest.approx(before["losses"][0], rel=1e-3, abs=1e-3)
    assert now["losses"] == pytest.approx(before["losses"], rel=5e-2, abs=5e-3)
    assert now["lengths"] == pytest.approx(before["lengths"], rel=1e-2, abs=1e-3)
    turned = [
        abs(one - other) > 5e-2 * length + 5e-3
        for length, one, other in zip(
            now["lengths"], now["projections"], before["projections"], strict=True
        )
    ]
    assert sum(turned) <= len(turned) / 10, "more than a decision that flipped on another machine"


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: sketch(name) for name in METHODS}, indent=None) + "\n")
