"""A model: a head on a backbone."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from protofission.core.records import Output
from protofission.models.bodies import Body


class Model(nn.Module):
    """Images in, `Output` out."""

    def __init__(self, backbone: Body, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, inputs: Tensor) -> Output:
        """(N, ...) inputs to the head's output."""
        return cast(Output, self.head(self.backbone(inputs)))
