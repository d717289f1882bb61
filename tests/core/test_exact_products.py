"""Exact products: against fractions, and the same bits in any order."""

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from protofission.core.exact_products import exact_lengths, exact_products, exact_sums


def draw(rows: int, columns: int, spread: float) -> Tensor:
    """Numbers of very different sizes."""
    generator = torch.Generator().manual_seed(columns)
    sizes = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator) * torch.exp(
        spread * sizes
    )


@pytest.mark.parametrize("spread", [0.0, 10.0])
@pytest.mark.parametrize("columns", [1, 2, 3, 64, 65, 5000])
def test_products_are_close_to_those_of_fractions(columns: int, spread: float) -> None:
    rows, others = draw(3, columns, spread), draw(2, columns, spread)
    found = exact_products(rows, others)
    for i, row in enumerate(rows.tolist()):
        for j, other in enumerate(others.tolist()):
            true = sum(Fraction(a) * Fraction(b) for a, b in zip(row, other, strict=True))
            size = float(rows[i].abs().max() * others[j].abs().max()) * columns
            assert abs(float(true) - float(found[i, j])) <= 2.0**-38 * size
        total, largest = float(sum(map(Fraction, row))), float(rows[i].abs().max())
        assert abs(total - float(exact_sums(rows)[i])) <= 2.0**-38 * largest * columns
    torch.testing.assert_close(exact_lengths(rows), torch.linalg.vector_norm(rows, dim=-1))


@pytest.mark.parametrize("columns", [1, 2, 3, 64, 65, 5000])
def test_no_order_of_columns_or_rows_changes_a_bit(columns: int) -> None:
    rows, others = draw(40, columns, 3.0), draw(7, columns, 3.0)
    found, lengths = exact_products(rows, others), exact_lengths(rows)
    for seed in range(5):
        order = torch.randperm(columns, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(exact_products(rows[:, order], others[:, order]), found)
        assert torch.equal(exact_lengths(rows[:, order]), lengths)
        assert torch.equal(exact_sums(rows[:, order]), exact_sums(rows))
    for place in range(0, 40, 7):
        assert torch.equal(exact_products(rows[place : place + 1], others)[0], found[place])
    # the same in plain double precision: it does matter there
    order = torch.arange(columns).flip(0)
    plain = rows @ others.T
    assert columns < 3 or not torch.equal(rows[:, order] @ others[:, order].T, plain)


def test_zeros_and_numbers_at_the_ends_of_the_range_are_taken() -> None:
    rows = torch.tensor(
        [[0.0, 0.0], [1e-320, 0.0], [1e-200, 1e-210], [1e150, -1e150]], dtype=torch.float64
    )
    found = exact_products(rows, torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    assert found[:2].tolist() == [[0.0], [0.0]]
    assert torch.isfinite(found).all()
    assert found[3].item() == pytest.approx(-1e150)
    assert exact_lengths(rows)[3].item() == pytest.approx(2**0.5 * 1e150)
