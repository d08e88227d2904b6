"""Operators on sound: signals, spectrograms, and what is made of them."""
