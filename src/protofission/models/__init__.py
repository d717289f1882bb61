"""Backbones, adapters, heads and encoders, and the weights that they start from."""
