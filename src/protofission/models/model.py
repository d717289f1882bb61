"""A model: a head on a body, which is a backbone for images or an adapter for features."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from protofission.core.errors import unknown
from protofission.core.records import Output
from protofission.models.adapters import ADAPTERS, Adapter, AdapterSpec
from protofission.models.backbones import BACKBONES, Backbone, BackboneSpec

Body = Backbone | Adapter
BodySpec = BackboneSpec | AdapterSpec

BODIES: dict[str, BodySpec] = {**BACKBONES, **ADAPTERS}


def find_body(name: str) -> BodySpec:
    """The specification of a backbone or an adapter, by name."""
    if name not in BODIES:
        raise unknown("backbone", name, BODIES)
    return BODIES[name]


class Model(nn.Module):
    """A body and a head: images or features in, `Output` out."""

    def __init__(self, backbone: Body, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, inputs: Tensor) -> Output:
        """(N, ...) inputs to the head's output."""
        return cast(Output, self.head(self.backbone(inputs)))
