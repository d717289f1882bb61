"""Views of feature vectors that come without images: noise, and dropout in a strong view."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from protofission.core.devices import send
from protofission.core.records import WHOLE, Share, ViewName
from protofission.data.augment.views import Augmentations


@dataclass(frozen=True)
class FeatureViews(Augmentations):
    """Views of (n, D) feature vectors."""

    mean: Tensor
    """(D,): the values of dropped features."""
    deviation: Tensor
    """(D,): the standard deviations, the unit of the noise."""
    weak: float = 0.1
    """The noise of a weak view, in standard deviations."""
    strong: float = 0.3
    """The noise of a strong view, in standard deviations."""
    dropout: float = 0.2
    """The chance that a strong view drops a feature."""

    @staticmethod
    def of(features: Tensor, *others: Tensor) -> FeatureViews:
        """Views with the means and deviations of (n, D) features, all tensors taken together."""
        rows = torch.cat([features, *others]).double()
        deviation = rows.std(0, correction=0)
        return FeatureViews(rows.mean(0).to(features), deviation.to(features))

    def plain(self, images: Tensor) -> Tensor:
        """The features as they are."""
        return images

    def view(
        self,
        name: ViewName,
        images: Tensor,
        generator: torch.Generator,
        share: Share = WHOLE,
        nth: int = 0,
    ) -> Tensor:
        """A noisy copy of each vector; see `Augmentations.view`. Every call draws anew."""
        if name == "plain":
            return images
        noise, dropout = (self.weak, 0.0) if name == "weak" else (self.strong, self.dropout)
        shape = (share.total(len(images)), images.shape[1])
        own = share.of(shape[0])
        drawn = torch.randn(shape, generator=generator)[own].to(images.dtype)
        noisy = images + noise * self.deviation * send(drawn, images.device)
        if not dropout:
            return noisy
        kept = torch.rand(shape, generator=generator)[own].to(images.dtype) >= dropout
        return torch.where(send(kept, images.device), noisy, self.mean)
