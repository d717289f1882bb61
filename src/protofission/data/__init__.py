"""Images and features: readers, splits, augmentation, the feature store, batches."""
