"""Iterators over pipelines, for all frameworks."""
