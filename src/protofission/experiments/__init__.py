"""Grids of runs and their reports: the paper's tables, one's own, and the demo."""
