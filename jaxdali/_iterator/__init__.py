"""Iterators over pipelines, whatever framework they are for."""
