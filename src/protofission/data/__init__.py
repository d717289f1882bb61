"""Image sets, splits, augmentation and batches."""
