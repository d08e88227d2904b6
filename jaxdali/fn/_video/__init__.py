"""Videos: their frames by number."""
