"""Images as tensors and as PIL has them, for the tests of augmentation."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from protofission.core.rng import step_rng


def natural(height: int, width: int, seed: int = 0, channels: int = 3) -> Tensor:
    """Six images: noise, a gradient with a blob, a dim one, a constant one, and black and white."""
    generator = step_rng(seed, 0, "images")
    noise = torch.randint(0, 256, (channels, height, width), generator=generator)
    ys = torch.linspace(0, 1, height)[:, None]
    xs = torch.linspace(0, 1, width)[None]
    slopes = torch.rand(channels, 2, 1, 1, generator=generator) * 120
    blob = 90 * (-((ys - 0.4) ** 2 + (xs - 0.6) ** 2) * 20).exp()
    smooth = slopes[:, 0] * ys + slopes[:, 1] * xs + blob
    parts = [noise, smooth, 60 + smooth / 8 + noise % 3, torch.full_like(smooth, 77)]
    parts += [torch.zeros_like(smooth), torch.full_like(smooth, 255)]
    return torch.stack([part.byte() for part in parts])


def picture(image: Tensor) -> Image.Image:
    pixels = image.permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[..., 0] if len(image) == 1 else np.ascontiguousarray(pixels))


def tensor(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
