"""Parts of benchmarks/practice.py: cells, features, baselines, fits, measures and report."""
