"""The class of `torch_python_function`."""

from ...ops._classes import PythonFunction
from .fn import torch_python_function


class TorchPythonFunction(PythonFunction):
    """`fn.torch_python_function` as a class: ``op = TorchPythonFunction(function=f)``, then ``op(images)`` in a
    pipeline definition.

    Args:
      function, num_outputs, device, batch_processing: those of `fn.torch_python_function`, here or in the call.
      **arguments: its other arguments.
    """

    __module__ = "jaxdali.plugin.pytorch"  # where users find it
    function = staticmethod(torch_python_function)
