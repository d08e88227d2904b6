"""The compiled programs: their operands, their cache, and where they run."""
