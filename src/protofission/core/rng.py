"""Randomness as a function of (seed, step): nothing to save, so resuming equals never stopping."""

from __future__ import annotations

import hashlib

import torch

from protofission.core.errors import require

MOST_SEEDS = 1000


def check_seed(seed: int, name: str = "seed") -> None:
    """Refuse a seed that is negative or does not fit 63 bits."""
    require(0 <= seed < 2**63, f"{name} = {seed} must be between 0 and 2^63 - 1.")


def seed_range(seeds: int, first: int) -> range:
    """So many seeds, from the first on.

    Raises:
        InputError: there are none or too many, or one of them is out of range.
    """
    require(1 <= seeds <= MOST_SEEDS, f"seeds = {seeds} must be at least 1, at most {MOST_SEEDS}.")
    check_seed(first, "first_seed")
    check_seed(first + seeds - 1, "The last seed")
    return range(first, first + seeds)


def step_rng(seed: int, step: int, stream: str) -> torch.Generator:
    """The generator of one step of a run for one purpose, `stream`; the same on every machine."""
    digest = hashlib.blake2b(f"{seed}/{step}/{stream}".encode(), digest_size=8).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator
