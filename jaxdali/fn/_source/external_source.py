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
from .pull import unwrapped


def _how_called(source: Any) -> int | None:
    """How many arguments a source is called with; None for an iterable or a generator function."""
    if inspect.isgeneratorfunction(unwrapped(source)):
        try:
            inspect.signature(source).bind()
        except TypeError:
            raise TypeError(f"{NAME}: a generator function used as source must need no argument, got {inspect.signature(source)}") from None
        return None
    if hasattr(source, "__iter__") or (hasattr(source, "__getitem__") and not callable(source)):
        return None
    if not callable(source):
        raise TypeError(f"{NAME}: source must be a callable, an iterable or a generator function, got {type(source).__name__}")
    parameters = list(inspect.signature(source).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1 or len(positional) < len(parameters):  # as DALI, which takes no other kinds even where they need no value
        raise TypeError(
            f"{NAME}: source must take no or one positional argument (batch or sample index) and no others, got {inspect.signature(source)}"
        )
    return len(positional)


def _per_output(name: str, x: Any, outputs: int) -> tuple[Any, ...]:
    many = x if isinstance(x, tuple) else (x,) * outputs
    if len(many) > outputs:
        raise ArgumentError(f"{NAME}: {name} has {len(many)} entries for {outputs} outputs")
    return many + (None,) * (outputs - len(many))


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
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Data from Python: from a callable or an iterable, or fed with `Pipeline.feed_input`.

    Data are NumPy or JAX arrays, or anything with ``__array__`` or DLPack that lies in host memory. A batch is an array with a batch
    axis, or a list of arrays of one dtype and rank; it may have fewer samples than the pipeline's batch size. Type and rank stay
    those of the first batch, at which the pipeline looks when it is built, unless dtype and ndim are given. All sources of a pipeline
    must give as many samples for a batch.

    A source is called in the thread that calls ``next()`` or `run` (and `build`, for the first batch), under its JAX settings, as in
    DALI `prefetch_queue_depth` batches ahead: its objects may belong to that thread, and its time is time of the training loop. With
    ``parallel=True`` it is called in background threads of this process, under the JAX settings of the thread that made the
    iterator or built the pipeline, while the loop goes on: right where it waits, or works in libraries that release the GIL. Measured
    with batches of 32 images (4.8 MB) on a loop of 40 ms, 2 cores: ``next()`` takes 3 ms to fetch a batch from memory, 0.2 ms with
    ``parallel=True``; for samples that wait 1 ms each 46 ms, with ``parallel=True`` 7.5 ms, and with ``py_num_workers=4`` 0.2 ms.
    The first item tells the types, so it is asked for by the thread that builds the pipeline.
    Differs from DALI: no processes are started, and what a source returns is not copied between them.

    A checkpoint goes on with the right index where the source is a callable that takes one. A source with methods ``get_state`` and
    ``set_state`` (a callable, the object whose method it is, an iterable, or the iterators it gives) goes on where it was: its state,
    bytes or something that JSON can hold, is that of the last batch taken, whatever was made ahead. All others start over, with a
    warning.

    Args:
      source: what to ask for data; without it, they are fed. A callable takes no argument, or one: with ``batch=True`` the number
        of the batch in the epoch, with ``batch=False`` a `types.SampleInfo`; it ends the epoch by raising StopIteration, and is asked
        again for the next epoch. An iterable or a generator function gives one item after another.
      num_outputs: how many values the source returns at once, as a tuple, or an array of so many rows; the result is then a list of
        DataNodes, even for 1. Without a source: so many nodes, each to be fed on its own. As in DALI, what the source gives for a node
        that no output of the pipeline depends on may be anything, None for instance; where that is true of all, it is never asked or fed.
      cycle: for iterables: None, False, "no": they end once; True, "quiet": they start again by themselves; "raise": StopIteration
        ends each round.
      name: for `feed_input` and error messages.
      device: "cpu", or "gpu": what follows runs on the accelerator.
      layout: one letter per axis of a sample, for each output or for all.
      dtype: the expected type; the data are checked, not converted.
      ndim: the expected dimensions of a sample.
      shape: not in DALI: the expected extents of a sample, None for those that vary, e.g. ``(None, None, 3)``; for all outputs, or a
        list of one for each. What follows is compiled with the extents that are known. Without it, and where dtype and ndim are not both
        given, the number of channels of images (a layout with H, W and C) is that of the first batch if its samples agree;
        a later image with another number is an error that says to pass ``shape=(None, None, None)``.
      cuda_stream: no effect (XLA orders the copies), accepted for DALI's sake.
      use_copy_kernel: no effect, accepted for DALI's sake.
      blocking: fed data: wait for them, instead of raising IndexError when there are none. A source is always waited for.
      batch: True: the source makes whole batches; False: samples. None is True, with `parallel` False.
      repeat_last: fed data: use the last batch again when there is no new one; of that as many samples as other sources have.
      parallel: call the source in the background: a callable that makes samples (``batch=False``) of an index in as many threads as
        the pipeline's `py_num_workers` says, at the same time; any other source in one. As in DALI each of several workers has its own
        copy of a callable object (`copy.deepcopy`), made when the first batch is. Functions, objects that can't be copied, and objects
        with get_state and set_state are shared; their first call of an epoch runs alone, after all calls of the epoch before.
      no_copy: keep the data that are fed by reference until their batch is read, instead of copying them at once. They must
        not change meanwhile.
      prefetch_queue_depth: no effect (the pipeline's depth decides), accepted as a hint of DALI's.
      batch_info: pass a `types.BatchInfo` to a callable that makes batches, not the number alone.

    Returns:
      A DataNode, or a list of them.

    Raises:
      TypeError, ValueError: a source or an argument of the wrong kind.
      RuntimeError: data of another type or rank, or too many samples, when the batch is made.
      Exceptions of the source come out as they are.
    """
    modes = {None: "no", False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}
    if num_outputs is not None and source is None and name is not None:
        raise ArgumentError(f"{NAME}: name={name!r} with num_outputs and without a source: each output is fed on its own, by its node")
    if repeat_last and source is not None:
        raise ArgumentError(f"{NAME}: repeat_last is for data that are fed; it can't be used together with source")
    arguments = 0 if source is None else _how_called(source)
    if arguments is None and hasattr(source, "__len__") and not (hasattr(source, "__iter__") or inspect.isgeneratorfunction(source)):
        warn(
            f"{NAME}: the source, a {type(source).__name__}, is a data set (it has __len__ and __getitem__), and is read from item 0 "
            "until it raises IndexError: fn.readers.source(dataset) ends by its length, shuffles it, splits it into shards and resumes"
        )
    if cycle is not None and arguments is not None:
        raise ArgumentError(f"{NAME}: cycle can only be used with an iterable source or a generator function")
    if modes[cycle] != "no" and inspect.isgenerator(source):
        raise TypeError(f"{NAME}: a generator can't start again; pass the generator function itself as source to use cycle={cycle!r}")
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
    each_has_one = isinstance(shape, tuple) and any(isinstance(x, tuple) for x in shape)
    shapes: tuple[Any, ...] = _per_output("shape", shape, outputs) if each_has_one else (shape,) * outputs
    for k, extents in enumerate(shapes):
        if extents is not None and ndims[k] not in (None, len(extents)):
            raise ArgumentError(f"{NAME}: shape {extents} has {len(extents)} dimensions, layout or ndim say {ndims[k]}")
        ndims[k] = ndims[k] if extents is None else len(extents)
    op = ExternalSource(
        feeder=source,
        arguments=arguments,
        outputs=num_outputs,
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
        each = zip(dtypes, ndims, shapes, layouts)
        ops = [dataclasses.replace(op, outputs=None, dtypes=(d,), ndims=(n,), shapes=(s,), layouts=(x,)) for d, n, s, x in each]
        return [add(op, device=device) for op in ops]
    result = add(op, device=device, name=name)
    return [result] if num_outputs == 1 and isinstance(result, DataNode) else result
