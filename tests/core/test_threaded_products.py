"""Products on all threads: their values and gradients, against torch and by hand."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from protofission.core.threaded_products import cosines, linear, unit_vectors, without_rounding
from protofission.core.threads import one_thread


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def draw(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((5, 4), (3, 4), (3,))
    rows, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes
    )
    return rows, weight, bias


def test_a_linear_map_is_that_of_torch_and_so_are_its_gradients() -> None:
    mine, theirs = ([t.clone().requires_grad_() for t in draw(0)] for _ in range(2))
    pull = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with one_thread():
        linear(*mine).backward(pull)
    F.linear(*theirs).backward(pull)
    torch.testing.assert_close(linear(*mine), F.linear(*theirs))
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    leaves = [t.requires_grad_() for t in draw(2)]
    assert gradcheck(linear, leaves)
    assert gradgradcheck(linear, leaves)
    rows, weight, bias = draw(3)
    frozen = linear(rows, weight, bias.requires_grad_())
    frozen.sum().backward()
    assert bias.grad is not None
    several = torch.stack([rows, 2 * rows])
    torch.testing.assert_close(
        torch.vmap(linear, (0, None, None))(several, weight, bias), F.linear(several, weight, bias)
    )


def pair(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = 3 * torch.randn(6, 4, dtype=torch.float64, generator=generator)
    others = torch.randn(5, 4, dtype=torch.float64, generator=generator) / 7
    return rows, others


def test_cosines_are_those_of_the_definition_and_so_are_their_gradients() -> None:
    (rows, others), pull = pair(0), torch.randn(6, 5, dtype=torch.float64)
    found = cosines(rows, others)
    for i, row in enumerate(rows.tolist()):
        for j, other in enumerate(others.tolist()):
            dot = math.fsum(a * b for a, b in zip(row, other, strict=True))
            assert found[i, j].item() == pytest.approx(dot / math.hypot(*row) / math.hypot(*other))
    mine, theirs = ([t.clone().requires_grad_() for t in (rows, others)] for _ in range(2))
    with one_thread():
        cosines(*mine).backward(pull)
    (F.normalize(theirs[0], dim=-1) @ F.normalize(theirs[1], dim=-1).T).backward(pull)
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    leaves = [t.requires_grad_() for t in pair(1)]
    assert gradcheck(cosines, leaves)
    assert gradgradcheck(cosines, leaves)


@pytest.mark.parametrize("which", [0, 1])
def test_cosines_of_which_one_side_is_fixed(which: int) -> None:
    sides = list(pair(2))
    sides[which].requires_grad_()
    assert gradcheck(cosines, sides)


def test_cosines_do_not_depend_on_lengths_and_of_0_are_0() -> None:
    rows, others = pair(3)
    torch.testing.assert_close(cosines(1e6 * rows, 1e-6 * others), cosines(rows, others))
    rows[1], others[2] = 0, 0
    found = cosines(rows, others)
    assert not found[1].any()
    assert not found[:, 2].any()
    assert found.isfinite().all()
    narrow = cosines(1e18 * rows.float(), 1e-9 * others.float())
    torch.testing.assert_close(narrow, found.float())


def test_unit_vectors_have_length_1_whatever_is_beside_them_and_0_stays_0() -> None:
    rows = torch.randn(40, 13, dtype=torch.float64) * torch.logspace(-5, 5, 40)[:, None]
    rows[7] = 0
    wanted = torch.stack([row / max(math.sqrt(sum(row.square())), 1e-12) for row in rows])
    torch.testing.assert_close(unit_vectors(rows), wanted)
    with without_rounding():
        exact = unit_vectors(rows)
        assert torch.equal(exact, torch.cat([unit_vectors(row[None]) for row in rows]))
    torch.testing.assert_close(exact, wanted)


def test_cosines_can_be_vectorized() -> None:
    rows, others = pair(4)
    several = torch.stack([rows, rows.flip(0)])
    each = torch.stack([cosines(one, others) for one in several])
    torch.testing.assert_close(torch.vmap(cosines, (0, None))(several, others), each)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_gradients_are_those_of_torch(dtype: torch.dtype) -> None:
    rows, weight, bias = (t.float() for t in draw(5))
    others = pair(5)[1].float()[:, :3]

    def run(maps: Callable[..., Tensor], compared: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (rows, weight, bias, others)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            found = compared(maps(*leaves[:3]), leaves[3])
        assert found.dtype == dtype
        found.float().square().sum().backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T

    for own, other in zip(run(linear, cosines), run(F.linear, plain), strict=True):
        torch.testing.assert_close(own, other)
