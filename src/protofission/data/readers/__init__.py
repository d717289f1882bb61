"""Readers of images: official data sets, folders, lists, arrays; decoding and caching."""
