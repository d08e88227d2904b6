"""Decides whether a user's JAX function can become part of a program: trial traces, and the Python state around them."""
