"""Randomness as a function of (seed, step): nothing to save, so resuming equals never stopping."""

from __future__ import annotations

import hashlib

import torch

from protofission.core.errors import require


def check_seed(seed: int, name: str = "seed") -> None:
    """Refuse a seed that is negative or does not fit 63 bits."""
    require(0 <= seed < 2**63, f"{name} = {seed} must be between 0 and 2^63 - 1.")


def step_rng(seed: int, step: int, stream: str) -> torch.Generator:
    """The generator of one step of a run for one purpose, `stream`; the same on every machine."""
    digest = hashlib.blake2b(f"{seed}/{step}/{stream}".encode(), digest_size=8).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator
