"""Copies of tensors to memory at a pointer, and thumbnails for notebooks."""
