"""Readers of images: official data sets, folders, lists and arrays; decoding and its cache."""
