"""Operators on tensors of any kind."""
