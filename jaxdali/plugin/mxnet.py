"""DALI's iterators for MXNet are not here: importing this module is an ImportError that says what to use."""

from .._core.names import instead

raise ImportError(instead("jaxdali.plugin", "mxnet"), name=__name__)
