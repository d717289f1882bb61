"""`python -m protofission`."""

from protofission.cli import main

main()
