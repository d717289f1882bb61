"""Records, risks, scores, metrics, statistics, randomness and errors."""
