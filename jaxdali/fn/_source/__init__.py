"""Data from Python."""
