"""A pipeline as its user defines, saves and restores it."""
