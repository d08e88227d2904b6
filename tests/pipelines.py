"""Runs small pipelines over given samples."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jaxdali
from jaxdali import fn
from jaxdali.backend import TensorListCPU


def run(define: Callable[..., Any], *inputs: Sequence[Any], on_device: bool = False, layouts: Sequence[str] = ()) -> list[TensorListCPU]:
    """Runs ``define(node, ...)`` as a pipeline of one batch.

    Args:
      define: gets a DataNode per input and returns the outputs.
      *inputs: the samples of each, as many as the batch has.
      on_device: move the inputs to the accelerator first, so that all that can is computed in the program.
      layouts: of the inputs.

    Returns:
      The outputs, on the host.
    """

    @jaxdali.pipeline_def(batch_size=len(inputs[0]), num_threads=2, device_id=None, seed=1)
    def pipeline():
        nodes: list[Any] = []
        for i, samples in enumerate(inputs):
            source = functools.partial(list, [np.asarray(x) for x in samples])
            nodes.append(fn.external_source(source=source, batch=True, layout=layouts[i] if layouts else None))
        return define(*(x.gpu() if on_device else x for x in nodes))

    p: Any = pipeline(exec_pipelined=False, exec_async=False)
    return [x.as_cpu() for x in p.run()]
