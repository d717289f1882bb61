"""Prediction as a server: images in a request, rows in the answer."""
