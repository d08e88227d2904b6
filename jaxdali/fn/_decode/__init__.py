"""Decoding of images."""
