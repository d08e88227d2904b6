"""``python -m jaxdali.benchmark DIR``: what a pipeline gives on a folder of one's own, and what bounds it."""
