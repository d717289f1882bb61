"""Splits of data sets: protocols, their registry, and files of them."""
