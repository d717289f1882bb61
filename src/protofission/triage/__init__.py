"""The practitioner's path: fit, predict, drift, export, and the page to look at."""
