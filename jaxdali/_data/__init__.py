"""Where samples come from: epochs, shuffling, sources."""
