"""Batches one after the other, ahead of their use or when they are asked for; and how that ends."""
