"""Squared distances against their twin."""

import torch
from torch.testing import assert_close

from builders import normal
from protofission.core.distances import squared_distances
from reference import prototypes as scalar


def test_squared_distances_are_never_below_0():
    rows = 1000 + normal(50, 3).float()
    found = squared_distances(rows, rows)
    assert found.min() >= 0
    twin = [[scalar.squared_distance(a, b) for b in rows[:5].tolist()] for a in rows.tolist()]
    assert_close(squared_distances(rows.double(), rows[:5].double()), torch.tensor(twin).double())
