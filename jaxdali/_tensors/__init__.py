"""Copies of tensors to memory that is given as a pointer."""
