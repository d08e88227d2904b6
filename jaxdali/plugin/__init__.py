"""Iterators for the frameworks."""
