"""``python -m jaxdali.benchmark DIR``: measures a pipeline on the user's own folder, and finds what limits it; or image
decoders.
"""
