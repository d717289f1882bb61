"""The feature store: features of several views of every image, memory-mapped."""
