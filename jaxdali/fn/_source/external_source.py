"""external_source: data from Python."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, Unpack

from ..._core.building import add, warn
from ..._core.declaration import INPUT, DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, operator_function
from .external_data import NAME
from .external_sources import ExternalSource
from .pull import unwrap_partial


def _num_arguments(source: Any) -> int | None:
    """The number of arguments of a source, 0 or 1; None for an iterable or a generator function.

    Raises:
      TypeError: it is none of these, or takes other arguments.
    """
    if inspect.isgeneratorfunction(unwrap_partial(source)):
        try:
            inspect.signature(source).bind()  # raises TypeError if an argument is needed
        except TypeError:
            raise TypeError(
                f"{NAME}: a generator function used as source must need no arguments, got {inspect.signature(source)}"
            ) from None
        return None
    if hasattr(source, "__iter__") or (hasattr(source, "__getitem__") and not callable(source)):
        return None
    if not callable(source):
        raise TypeError(
            f"{NAME}: source must be a callable, an iterable or a generator function, got {type(source).__name__}"
        )
    parameters = list(inspect.signature(source).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # As in DALI, which accepts no other kinds even if they need no value.
    if len(positional) > 1 or len(positional) < len(parameters):
        raise TypeError(
            f"{NAME}: source must take no or one positional argument (batch or sample index) and no others, got {inspect.signature(source)}"
        )
    return len(positional)


def _per_output(name: str, x: Any, outputs: int) -> tuple[Any, ...]:
    """An argument's value for each output: the entries of a tuple, which may be shorter, or one value for all."""
    values = x if isinstance(x, tuple) else (x,) * outputs
    if len(values) > outputs:
        raise ArgumentError(f"{NAME}: {name} has {len(values)} entries for {outputs} outputs")
    return values + (None,) * (outputs - len(values))


@operator_function(NAME)
def external_source(
    source: Annotated[Callable[..., Any] | Iterable[Any] | None, INPUT] = None,
    num_outputs: Annotated[int | None, Range(1)] = None,
    *,
    cycle: Literal["no", "quiet", "raise"] | bool | None = None,
    name: str | None = None,
    device: Literal["cpu", "gpu"] = "cpu",
    layout: str | Sequence[str | None] | None = None,
    dtype: DType | Sequence[DType | None] | None = None,
    ndim: Annotated[int | Sequence[int | None] | None, Range(0)] = None,
    shape: Annotated[Sequence[int | None] | Sequence[Sequence[int | None] | None] | None, Range(0)] = None,
    cuda_stream: Any = None,
    use_copy_kernel: bool | None = None,
    blocking: bool | None = None,
    batch: bool | None = True,
    repeat_last: bool = False,
    parallel: bool | None = None,
    no_copy: bool | None = None,
    prefetch_queue_depth: int | None = None,
    batch_info: bool | None = None,
    metadata: str | Sequence[str] | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Reads data from Python: from a callable or an iterable, or data fed with `Pipeline.feed_input`.

    Data are NumPy or JAX arrays, or anything with ``__array__`` or DLPack that lies in host memory. A batch is an array
    with a batch axis, or a list of arrays of one dtype and rank; it may have fewer samples than the pipeline's batch
    size. Type and rank must stay those of the first batch, which is read when the pipeline is built, unless dtype and
    ndim are given. All sources of a pipeline must give the same number of samples for a batch.

    A source is called in the thread that calls ``next()`` or `run` (or `build`, for the first batch), under its JAX
    settings, and `prefetch_queue_depth` batches ahead, as in DALI. Its objects may belong to that thread, but its time
    adds to the training loop. With ``parallel=True``, it is called in background threads of this process beside the
    loop, under the JAX settings of the thread that made the iterator or built the pipeline. This suits sources that
    wait, or that work in libraries which release the GIL, and on free-threaded Python all. For example, with batches of
    32 images (4.8 MB), a loop of 40 ms and 2 cores, ``next()`` takes 3 ms to fetch a batch from memory, and 0.2 ms with
    ``parallel=True``; for samples that wait 1 ms each, it takes 46 ms, 7.5 ms with ``parallel=True``, and 0.2 ms with
    ``py_num_workers=4`` in addition. The first item determines the types, so the thread that builds the pipeline asks
    for it. Differs from DALI: no processes are started, so results are not copied between processes.

    When a checkpoint of as many shards is resumed, a callable that takes an index continues with the right index. A
    source with methods ``get_state`` and ``set_state`` (a callable, the object whose method it is, an iterable, or its
    iterators) continues where it was: the checkpoint holds its state, bytes or a JSON-serializable value, after the
    last batch that was taken, regardless of batches made ahead. With several processes each must save its own
    checkpoint of such sources. All other sources start over, with a warning.

    Args:
      source: the source of the data; without one, data are fed. A callable takes no argument or one: with
        ``batch=True`` the number of the batch in the epoch, with ``batch=False`` a `types.SampleInfo`. It ends the
        epoch by raising StopIteration, and is called again for the next epoch. An iterable or a generator function
        gives one item after another.
      num_outputs: how many values the source returns at once, as a tuple or as the rows of an array; the result is then
        a list of DataNodes, even for 1. Without a source, this many nodes are made, each of which is fed separately. As
        in DALI, the values for a node that no output of the pipeline depends on may be anything, such as None; if that
        is true of all nodes, the source is never called or fed.
      cycle: what happens when an iterable ends. None, False, "no": the data end; True, "quiet": it starts again
        silently; "raise": it starts again after a StopIteration that ends the epoch.
      name: the name of the node, for `feed_input` and error messages.
      device: with "gpu", the data are moved to the accelerator, where later operators run. Default: "cpu".
      layout: one letter per axis of a sample, for each output or for all.
      dtype: the expected type. The data are checked, not converted.
      ndim: the expected number of dimensions of a sample.
      shape: the expected extents of a sample, None for those that vary, e.g. ``(None, None, 3)``; for all outputs, or a
        list with one entry per output. Later operators are compiled with the known extents. Without a shape, and if
        dtype and ndim are not both given, the number of channels of images (with H, W and C in the layout) is that of
        the first batch if its samples agree; a later image with another number is an error that suggests ``shape=(None,
        None, None)``. Not in DALI.
      cuda_stream: has no effect (XLA orders the copies); accepted for compatibility with DALI.
      use_copy_kernel: has no effect; accepted for compatibility with DALI.
      blocking: for fed data, whether to wait for them instead of raising IndexError if there are none. The pipeline
        always waits for a source.
      batch: whether the source makes whole batches (True) or samples (False). None means True, or False with
        `parallel`.
      repeat_last: for fed data, whether to use the last batch again if there is no new one, with as many samples as the
        other sources have.
      parallel: whether to call the source in the background. A callable that makes samples (``batch=False``) from an
        index is called in `py_num_workers` threads at the same time; any other source is called in one thread. As in
        DALI, each pipeline reads a copy of an iterable or callable object (`copy.deepcopy`), made when it is built, and
        each of several workers has a copy, too. Locks, memory maps and read-only arrays in it, functions, and objects
        that can't be copied are shared. If two pipelines share an iterator that can't be copied, such as a generator,
        each gets a part of its items, with a warning; so it is with one that reads an open file. A class can leave such
        a file out of copies (``__getstate__``), and open it in them (``__setstate__``). Workers share functions and
        objects with get_state and set_state; the first call of an epoch then runs alone, after all calls of the epoch
        before.
      no_copy: whether to keep a reference to fed data until their batch is read, instead of copying them at once. They
        must not change until then.
      prefetch_queue_depth: has no effect, as the pipeline's depth applies; accepted for compatibility with DALI.
      batch_info: whether to pass a `types.BatchInfo` to a callable that makes batches, instead of the number alone.
      metadata: names of Python objects that accompany the samples; each adds an output after the others. The source
        returns them after the arrays, as further items of a tuple: a list with one object for each sample of a batch,
        or one object with ``batch=False``. Only `python_function` takes them, and a batch has them as lists, in the
        order of its samples; they never become part of a program. Data that are fed are then such tuples, too. Not in
        DALI.

    Returns:
      A DataNode, or a list of them.

    Raises:
      TypeError, ValueError: the source or an argument is of the wrong kind.
      RuntimeError: when a batch is made, the data have another type or rank, or too many samples. Exceptions that the
        source raises are passed on unchanged. The next run then takes the next batch of all sources. Only a callable
        without an argument goes on where it stands, so with ``batch=False`` or several shards its data may belong to
        other samples than those of other sources.
    """
    modes = {None: "no", False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}
    if num_outputs is not None and source is None and name is not None:
        raise ArgumentError(
            f"{NAME}: name={name!r} with num_outputs and without a source: each output is fed separately, by its node"
        )
    if metadata is not None and source is None and num_outputs is not None:
        raise ArgumentError(
            f"{NAME}: metadata and num_outputs without a source: each output is fed separately; leave out num_outputs"
        )
    if repeat_last and source is not None:
        raise ArgumentError(f"{NAME}: repeat_last is for fed data; it can't be used together with source")
    arguments = 0 if source is None else _num_arguments(source)
    if (
        arguments is None
        and hasattr(source, "__len__")
        and not (hasattr(source, "__iter__") or inspect.isgeneratorfunction(source))
    ):
        warn(
            f"{NAME}: the source, a {type(source).__name__}, is a data set (it has __len__ and __getitem__), and is read from item 0 "
            "until it raises IndexError; fn.readers.source(dataset) respects its length, shuffles it, splits it into shards and resumes"
        )
    if cycle is not None and arguments is not None:
        raise ArgumentError(f"{NAME}: cycle can only be used with an iterable source or a generator function")
    if modes[cycle] != "no" and inspect.isgenerator(source):
        raise TypeError(
            f"{NAME}: a generator can't start again; pass the generator function itself as source to use cycle={cycle!r}"
        )
    if batch is None:
        batch = not parallel
    outputs = num_outputs or 1
    dtypes = _per_output("dtype", dtype, outputs)
    layouts = tuple(x or "" for x in _per_output("layout", layout, outputs))
    ndims = list(_per_output("ndim", ndim, outputs))
    for k, text in enumerate(layouts):
        if text and ndims[k] not in (None, len(text)):
            raise ArgumentError(f"{NAME}: layout {text!r} describes {len(text)} dimensions, but ndim is {ndims[k]}")
        ndims[k] = len(text) if text else ndims[k]
    # One shape for all outputs has only numbers and None; shapes for each are tuples in a tuple.
    is_per_output = isinstance(shape, tuple) and any(isinstance(x, tuple) for x in shape)
    shapes: tuple[Any, ...] = _per_output("shape", shape, outputs) if is_per_output else (shape,) * outputs
    for k, extents in enumerate(shapes):
        if extents is not None and ndims[k] not in (None, len(extents)):
            raise ArgumentError(f"{NAME}: shape {extents} has {len(extents)} dimensions, layout or ndim say {ndims[k]}")
        ndims[k] = ndims[k] if extents is None else len(extents)
    op = ExternalSource(
        feeder=source,
        arguments=arguments,
        outputs=num_outputs,
        metadata=metadata if isinstance(metadata, str) or metadata is None else tuple(metadata),
        shapes=shapes,
        cycle=modes[cycle],
        batch=bool(batch),
        batch_info=bool(batch_info),
        parallel=bool(parallel),
        dtypes=dtypes,
        ndims=tuple(ndims),
        layouts=layouts,
        no_copy=bool(no_copy),
        repeat_last=bool(repeat_last),
        blocking=bool(blocking),
    )
    if source is None and num_outputs is not None:
        arguments_of_outputs = zip(dtypes, ndims, shapes, layouts)
        ops = [
            dataclasses.replace(op, outputs=None, dtypes=(d,), ndims=(n,), shapes=(s,), layouts=(x,))
            for d, n, s, x in arguments_of_outputs
        ]
        return [add(op, device=device) for op in ops]
    result = add(op, device=device, name=name)
    return [result] if num_outputs == 1 and isinstance(result, DataNode) else result
