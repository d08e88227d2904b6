"""Defines, saves and restores pipelines."""
