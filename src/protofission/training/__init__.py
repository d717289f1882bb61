"""Training runs: the experiment, its presets, the loop, evaluation, and the run folder."""
