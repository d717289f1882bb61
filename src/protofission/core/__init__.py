"""What everything is made of: records, losses, scores, metrics, statistics, randomness, errors."""
