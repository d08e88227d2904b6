"""Operators on sound: signals, spectrograms, and features of spectrograms."""
