"""Whether a function of JAX code can become part of a program: trial traces, and the Python state around them."""
