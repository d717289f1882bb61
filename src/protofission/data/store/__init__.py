"""The feature store: features of several views of every image, computed once, memory-mapped."""
