"""Copies tensors to memory that is given as a pointer."""
