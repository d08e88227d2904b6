"""The origin of samples: sources, storage, shuffling, epochs."""
