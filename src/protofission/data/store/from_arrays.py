"""Make a store of features that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, require, unknown
from protofission.core.records import ViewName
from protofission.data.image_sets import Labels
from protofission.data.store.manifest import Block, Features, Part, StorePlan, fingerprint
from protofission.data.store.mapped_arrays import release
from protofission.data.store.reader import Store
from protofission.data.store.unusable_features import UnusableFeatures
from protofission.data.store.writer import Computed, fill
from protofission.system.digests import digest


def store_features(
    folder: Path | str,
    views: Mapping[ViewName, Any],
    labels: Any,
    class_names: Sequence[str],
    *,
    test: Any = None,
    test_labels: Any = None,
    name: str = "features",
) -> Store:
    """Make a store of features that were computed elsewhere.

    Args:
        folder: the store's.
        views: (images, D) or (images, versions, D) floats, by view; "plain" must be among them.
        labels: (images,) whole numbers, indices into `class_names`, or -1 for none.
        test: (images, D), the plain features of test images, if there are any.
        test_labels: their labels.
        name: of the data set.
    """
    given: dict[str, dict[ViewName, Any]] = {"train": dict(views)}
    truth = {"train": _whole_labels(labels, len(class_names))}
    if test is not None:
        given["test"] = {"plain": test}
        truth["test"] = _whole_labels(test_labels, len(class_names))
    arrays = {
        (part, view): _versions(part, view, features, len(truth[part]))
        for part, own in given.items()
        for view, features in own.items()
    }
    require(
        ("train", "plain") in arrays,
        "Features want a plain view, on which a model is evaluated: add it.",
    )
    (wide,) = arrays["train", "plain"].shape[2:]
    for (part, view), array in arrays.items():
        require(
            array.shape[2] == wide,
            f"The {view} features of {part} are {array.shape[2]} wide, not {wide}: give all alike.",
        )
    size = 8192
    content: dict[str, Any] = {part: digest(own.tobytes()) for part, own in truth.items()}
    content["class_names"] = list(class_names)
    for (part, view), array in arrays.items():
        parts = (_cut(array, start, start + size) for start in range(0, len(array), size))
        content[f"{part}-{view}"] = [digest(values.tobytes()) for values in parts]
    known = {"kind": "given", "fingerprint": fingerprint(content)}
    plan = StorePlan(
        data={**known, "name": name, "shape": [wide]},
        encoder=known,
        augmentation=known,
        item=(wide,),
        parts={
            part: Part(len(truth[part]), {view: arrays[part, view].shape[1] for view in own})
            for part, own in given.items()
        },
        block=size,
        class_names=tuple(class_names),
    )

    def compute(blocks: Sequence[Block]) -> Computed:
        for part, start, stop in blocks:
            views = plan.parts[part].views
            yield Block(part, start, stop), {v: _cut(arrays[part, v], start, stop) for v in views}

    faults = UnusableFeatures(plan, {})
    for block, own in compute(list(plan.blocks())):
        faults.check_block(block, own)
    faults.refuse()  # before anything is written
    return fill(Path(folder).expanduser(), plan, truth, compute)


def _whole_labels(labels: Any, classes: int) -> Labels:
    array = np.asarray(labels)
    require(
        array.ndim == 1 and array.dtype.kind in "iu" and len(array) > 0,
        f"Labels of the shape {array.shape} and type {array.dtype} are not understood: give a "
        "whole number for each image, -1 for none.",
    )
    require(
        int(array.min()) >= -1 and int(array.max()) < classes,
        f"Labels run from {array.min()} to {array.max()}, but there are {classes} class names: "
        "give places among them, or -1 for none.",
    )
    return array.astype(np.int64)


def _versions(part: str, view: ViewName, features: Any, rows: int) -> NDArray[Any]:
    """The features of a view as (images, versions, D)."""
    if view not in get_args(ViewName):
        raise unknown("view", view, get_args(ViewName))
    try:
        array: NDArray[Any] = np.asanyarray(features)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"The {view} features of {part} are no array ({error}): give one of NumPy's, of floats."
        ) from None
    array = array[:, None] if array.ndim == 2 else array
    require(
        array.ndim == 3
        and len(array) == rows
        and min(array.shape) > 0
        and array.dtype.kind == "f"
        and (view != "plain" or array.shape[1] == 1),
        f"The {view} features of {part} have the shape {array.shape} and type {array.dtype}: "
        f"floats of ({rows} images, D) or ({rows} images, versions, D) are wanted, and of a plain "
        "view one version.",
    )
    return array


def _cut(array: NDArray[Any], start: int, stop: int) -> Features:
    """Some rows in half precision; the pages of the others are released."""
    with np.errstate(over="ignore"):  # images with infinite features are refused later
        rows = np.array(array[start:stop]).astype(np.float16)
    release(array)
    return rows
