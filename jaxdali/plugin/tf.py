"""DALI's iterators for TensorFlow are not here: importing this module is an ImportError that says what to use."""

from .._core.names import instead

raise ImportError(instead("jaxdali.plugin", "tf"), name=__name__)
