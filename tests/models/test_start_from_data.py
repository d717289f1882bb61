"""Prototypes that start from the data: the closed form of l, blobs, little data, refusals."""

from __future__ import annotations
