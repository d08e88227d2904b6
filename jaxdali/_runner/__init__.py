"""Makes batches one after the other, ahead of their use or on demand, and ends the threads that do."""
