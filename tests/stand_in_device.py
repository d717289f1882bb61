"""A device that stands in for an accelerator: tensors that say they are on `board:0`.

Their numbers are in the memory of the CPU, so that every result can be compared with the CPU's own.
What a real accelerator refuses is refused here: an operation on tensors of two devices, a
generator of another device, reading the memory. What makes it wait is written down: a value that is
read, a copy that is waited for, a result whose size depends on values.

Registering the device changes torch for the whole process: import this in a process of its own.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("board")
torch.__future__.set_overwrite_module_params_on_conversion(True)

BOARD = torch.device("board:0")
SIZED_BY_VALUES = {"nonzero", "bincount", "unique_dim", "_unique2", "masked_select"}
"""Operations whose result's size is not known before its values are."""
CROSS = {"_to_copy", "copy_"}
"""Operations that move numbers between devices."""


INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


class OnBoard(torch.Tensor):
    """A tensor of the stand-in device; `numbers` has its numbers."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> "OnBoard":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=BOARD,
        )
        made.numbers = real
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        return f"OnBoard({tuple(self.shape)}, {self.dtype})"


class Waits:
    """The places of the package where the CPU waited for the device, and how often."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def note(self, what: str) -> None:
        for frame in reversed(traceback.extract_stack()):
            if "/src/protofission/" in frame.filename:
                place = frame.filename.partition("/src/protofission/")[2]
                self.found[f"{what}: {place}: {frame.line}"] += 1
                return
        self.found[f"{what}: outside"] += 1


WAITS = Waits()


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on the numbers, after the checks of a real device."""
    flat, form = tree_flatten((args, kwargs))
    target = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
    if target != "board" and not any(isinstance(t, OnBoard) for t in flat):
        return func(*args, **kwargs)
    name = func.overloadpacket.__name__
    _note_waits(name, args, kwargs, target)
    _check_devices(func, name, flat, args, kwargs)
    unwrapped = [t.numbers if isinstance(t, OnBoard) else t for t in flat]
    real_args, real_kwargs = tree_unflatten(unwrapped, form)
    if target is not None:
        real_kwargs = {**real_kwargs, "device": torch.device("cpu")}
    result = func(*real_args, **real_kwargs)
    if target == "cpu" or (name == "copy_" and not isinstance(args[0], OnBoard)):
        return result
    return _rewrap(func, result, args)


def _check_devices(func: Any, name: str, flat: list[Any], args: Any, kwargs: Any) -> None:
    """Refuse tensors of two devices, but for single numbers, copies and places to index by."""
    others = [t for t in flat if isinstance(t, torch.Tensor) and not isinstance(t, OnBoard)]
    places = [t for t in args[1] if t is not None] if name in INDEXING else []
    others = [t for t in others if not any(t is place for place in places)]
    mixed = any(isinstance(t, OnBoard) for t in flat) and any(t.ndim for t in others)
    if mixed and name not in CROSS:
        raise RuntimeError(f"{func} got tensors of two devices, board:0 and cpu")
    if isinstance(kwargs.get("generator"), torch.Generator):
        raise RuntimeError(f"{func} got a generator of another device")


def _note_waits(name: str, args: Any, kwargs: Any, target: str | None) -> None:
    if name in CROSS:
        _note_copy(name, args, kwargs, target)
    elif name == "_local_scalar_dense":
        WAITS.note("reads a value")
    elif name in SIZED_BY_VALUES:
        WAITS.note(f"waits for {name}")
    elif name in INDEXING:
        places = [t for t in args[1] if t is not None]
        if any(t.dtype in (torch.bool, torch.uint8) for t in places):
            WAITS.note("indexes by a mask")
        if any(not isinstance(t, OnBoard) for t in places):
            WAITS.note("indexes by places on the CPU")


def _note_copy(name: str, args: Any, kwargs: Any, target: str | None) -> None:
    to_board = target == "board" if name == "_to_copy" else isinstance(args[0], OnBoard)
    source = args[0] if name == "_to_copy" else args[1]
    from_board = isinstance(source, OnBoard)
    if name == "_to_copy" and target is None:
        return
    waits = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
    if from_board and not to_board:
        WAITS.note("copies to the CPU")
    elif to_board and not from_board and waits:
        WAITS.note("waits for a copy to the device")


def _rewrap(func: Any, result: Any, args: Any) -> Any:
    """Results as tensors of the device; of an operation in place, the tensor it was given."""
    if func._schema.is_mutable and args and isinstance(args[0], OnBoard):
        return args[0]
    return tree_map_only(torch.Tensor, OnBoard, result)


class _Board(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


@contextmanager
def board() -> Iterator[Counter[str]]:
    """Give the device to a block; the counter fills with its waits."""
    WAITS.found = Counter()
    with _Board():
        yield WAITS.found


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor of either device."""
    tensor = tensor.detach()
    return tensor.numbers if isinstance(tensor, OnBoard) else tensor
