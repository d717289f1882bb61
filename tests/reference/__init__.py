"""Slow scalar twins of every equation and metric: `math` and lists, nothing of protofission."""
