"""DALI's iterators for Paddle are not here: importing this module is an ImportError that says what to use."""

from .._core.names import instead

raise ImportError(instead("jaxdali.plugin", "paddle"), name=__name__)
