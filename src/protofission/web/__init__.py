"""Servers on HTTP: what guards and runs them, and the prediction of images."""
