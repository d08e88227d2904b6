"""The plan of a pipeline: the operators of its graph, bound, simplified, and cut into programs."""
