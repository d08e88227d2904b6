"""What runs: the operators of a graph, bound, simplified, and cut into programs."""
