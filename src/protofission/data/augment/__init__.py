"""Augmentation as batched tensor operations, and the views that methods ask for."""
