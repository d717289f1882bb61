"""Threads: what is put aside comes back, and a product is the same whoever computes it."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from protofission.threads import all_threads, linear, one_thread


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_threads_are_put_aside_taken_back_for_a_while_and_restored() -> None:
    with all_threads():
        assert torch.get_num_threads() == 3  # outside of one_thread, nothing changes
    with one_thread():
        assert torch.get_num_threads() == 1
        with all_threads():
            assert torch.get_num_threads() == 3
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError), one_thread():
        torch.get_num_threads() / 0
    assert torch.get_num_threads() == 3
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 3


def drawn(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((5, 4), (3, 4), (3,))
    rows, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes
    )
    return rows, weight, bias


def test_a_linear_map_is_that_of_torch_and_so_are_its_gradients() -> None:
    mine, theirs = ([t.clone().requires_grad_() for t in drawn(0)] for _ in range(2))
    pull = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with one_thread():
        linear(*mine).backward(pull)
    F.linear(*theirs).backward(pull)
    torch.testing.assert_close(linear(*mine), F.linear(*theirs))
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    leaves = [t.requires_grad_() for t in drawn(2)]
    assert gradcheck(linear, leaves)
    assert gradgradcheck(linear, leaves)
    rows, weight, bias = drawn(3)
    frozen = linear(rows, weight, bias.requires_grad_())
    frozen.sum().backward()
    assert bias.grad is not None
    several = torch.stack([rows, 2 * rows])
    torch.testing.assert_close(
        torch.vmap(linear, (0, None, None))(several, weight, bias), F.linear(several, weight, bias)
    )
