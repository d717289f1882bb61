"""The models of all folds side by side: one product for all of them, in place of one each.

To judge a few images takes some hundred small operations a model, whose start costs more than they
do. Here each is done once, on (K, ...) tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from protofission.core.threaded_products import linear, products, unit_vectors
from protofission.fission import FissionHead, max_logits
from protofission.models.adapters import Adapter
from protofission.models.model import Model
from protofission.triage.fold_model import FoldModel


def can_stack(models: Sequence[FoldModel]) -> bool:
    """Whether models are of one size, with a linear adapter and cosines with prototypes."""
    sizes = models[0].sizes
    return (
        all(model.sizes == sizes for model in models)
        and (sizes.adapter.kind, sizes.head.kind) == ("linear", "fission")
        and sizes.head.has_cosines
    )


class FoldStack(FoldModel):
    """K models of a fit as one, whose logits are (K, N, S) and whose scores are (K, N).

    Args:
        models: that `can_stack`, of which this holds copies.
    """

    weight: Tensor
    """(K, W, width), of the adapters, with their standardization."""
    bias: Tensor
    """(K, W)."""
    prototypes: Tensor
    """(K, heads V, W), of length 1."""

    def __init__(self, models: Sequence[FoldModel]) -> None:
        nn.Module.__init__(self)
        self.sizes = models[0].sizes
        for name, _ in models[0].named_buffers(recurse=False):
            self._stack(name, [model.get_buffer(name) for model in models])
        parts = zip(*(_adapter_and_prototypes(model.model) for model in models), strict=True)
        for name, own in zip(("weight", "bias", "prototypes"), parts, strict=True):
            self._stack(name, own)

    def _stack(self, name: str, tensors: Sequence[Tensor]) -> None:
        self.register_buffer(name, torch.stack(list(tensors)), persistent=False)

    def head_logits(self, units: Tensor) -> Tensor:
        """(K, N, heads): fission's logits of (K, N, width) whitened units."""
        rows = unit_vectors(linear(units, self.weight, self.bias))
        cosines = products(rows, self.prototypes)
        heads = self.sizes.heads
        nearest = max_logits(cosines.reshape(*rows.shape[:2], heads, cosines.shape[-1] // heads))
        return self.sizes.head.temperature * nearest - self.sizes.head.offset


@torch.no_grad()
def _adapter_and_prototypes(model: Model) -> tuple[Tensor, Tensor, Tensor]:
    """Weight and bias of a linear adapter with its standardization, and unit prototypes."""
    adapter, head = model.backbone, model.head
    assert isinstance(adapter, Adapter)
    assert isinstance(head, FissionHead)
    layer = adapter.layers[0]
    assert isinstance(layer, nn.Linear)
    weight = layer.weight / adapter.deviation
    bias = layer.bias - weight @ adapter.mean
    return weight, bias, unit_vectors(head.prototypes().combined.flatten(0, 1))
