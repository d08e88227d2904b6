"""Small pipelines that many tests run."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxdali import fn, pipeline_def
from jaxdali.backend import TensorListCPU


def run(
    define: Callable[..., Any], *inputs: Sequence[Any], on_device: bool = False, layouts: Sequence[str] = ()
) -> list[TensorListCPU]:
    """Runs ``define(node, ...)`` as a pipeline of one batch.

    Args:
      define: gets a DataNode per input and returns the outputs.
      *inputs: the samples of each, as many as the batch has.
      on_device: move the inputs to the accelerator first, so that all that can is computed in the program.
      layouts: of the inputs.

    Returns:
      The outputs, on the host.
    """

    @pipeline_def(batch_size=len(inputs[0]), num_threads=2, device_id=None, seed=1)
    def pipeline():
        nodes: list[Any] = []
        for i, samples in enumerate(inputs):
            source = functools.partial(list, [np.asarray(x) for x in samples])
            nodes.append(fn.external_source(source=source, batch=True, layout=layouts[i] if layouts else None))
        return define(*(x.gpu() if on_device else x for x in nodes))

    p: Any = pipeline(exec_pipelined=False, exec_async=False)
    return [x.as_cpu() for x in p.run()]


def file_contents(files, num_shards=1, shard_id=0, pad=False, stick=False, shuffle=False):
    """A definition of which epochs consist of the files, one byte each."""
    data, _ = fn.readers.file(
        files=files,
        name="reader",
        num_shards=num_shards,
        shard_id=shard_id,
        pad_last_batch=pad,
        stick_to_shard=stick,
        random_shuffle=shuffle,
    )
    return data


def counter(stop=None):
    def source(info):
        if stop is not None and info.iteration == stop:
            raise StopIteration
        return np.int32(info.idx_in_epoch)

    return source


def values(outputs):
    return outputs[0].as_array().tolist()


@pipeline_def(batch_size=3, num_threads=2, seed=1)
def numbers(stop=None, offset=0):
    return fn.external_source(source=counter(stop), batch=False) + offset


def step(it):
    """The exact result of one call of `next`; None at the end of an epoch."""
    try:
        return {k: np.asarray(v).tobytes() for k, v in next(it).items()}
    except StopIteration:
        it.reset()
        return None


def external(*args, batch_size=3, **kwargs):
    """A pipeline of an external_source alone."""

    @pipeline_def(batch_size=batch_size, num_threads=2, prefetch_queue_depth=1)
    def define():
        return fn.external_source(*args, **kwargs)

    return define()
