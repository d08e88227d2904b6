"""DALI's `ExternalSource` of dynamic mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..._core.tracebacks import boundaries
from ...dynamic import _batch
from ._contexts import device_of
from ._values import Batch, Tensor, batch, tensor

_CYCLES = {"no": "no", False: "no", None: "no", "quiet": "quiet", True: "quiet", "raise": "raise"}


@boundaries
class ExternalSource:
    """Takes data from a Python function or iterable: each call takes the next data.

    Args:
      source: a function without parameters that returns data, or a generator function; or an iterable of data. Data are
        one sample, a `Batch`, or a tuple of these if there are several outputs.
      num_outputs: the number of outputs.
      cycle: the behaviour at the end of an iterable. "no", False or None: each further call raises StopIteration;
        "quiet" or True: the iterable begins again; "raise": one StopIteration, then the iterable begins again.
      device: the device of the outputs.
      layout, dtype: of the outputs, one for all or a sequence.

    Raises:
      TypeError: `source` is neither a function nor an iterable.
      ValueError: `cycle` is none of these, or is passed without an iterable; or the number of layouts or types is not
        that of the outputs.

    Example:
      >>> source = ndd.ExternalSource([np.full((2, 2), i) for i in range(4)])
      >>> first = source()
      >>> repeated = source(batch_size=3)
    """

    def __init__(
        self,
        source: Callable[[], Any] | Iterable[Any],
        num_outputs: int = 1,
        *,
        cycle: str | bool | None = None,
        device: Any = "cpu",
        layout: str | Sequence[str] | None = None,
        dtype: Any = None,
    ):
        if isinstance(num_outputs, bool) or not isinstance(num_outputs, int) or num_outputs < 1:
            raise ValueError(f"ExternalSource: num_outputs must be a number of 1 or more, got {num_outputs!r}")
        if not (isinstance(cycle, (str, bool)) or cycle is None) or cycle not in _CYCLES:
            raise ValueError(f"ExternalSource: cycle must be 'no', 'quiet', 'raise', a bool or None, got {cycle!r}")
        is_iterable = isinstance(source, Iterable) or inspect.isgeneratorfunction(source)
        if not is_iterable and not callable(source):
            raise TypeError(f"ExternalSource: source must be a function or an iterable, got {type(source).__name__}")
        if not is_iterable and cycle is not None:
            raise ValueError("ExternalSource: cycle needs a source that is an iterable or a generator function")
        device_of(device)  # raises an error if there is no such device
        self._source: Any = source
        self._is_iterable, self._cycle = is_iterable, _CYCLES[cycle]
        self._iterator: Iterator[Any] | None = None
        self._num_outputs, self._device = num_outputs, device
        self._layouts = self._per_output("layout", layout)
        self._dtypes = self._per_output("dtype", dtype)

    def _per_output(self, name: str, argument: Any) -> list[Any]:
        """An argument as a list with an entry for each output."""
        if isinstance(argument, (list, tuple)):
            if len(argument) != self._num_outputs:
                raise ValueError(
                    f"ExternalSource: {name} has {len(argument)} entries for {self._num_outputs} output(s)"
                )
            return list(argument)
        return [argument] * self._num_outputs

    def __call__(self, batch_size: int | None = None) -> Any:
        """Takes the next data.

        Args:
          batch_size: a sample is repeated to a batch of this size; a batch must have this size.

        Returns:
          A `Tensor` or a `Batch`, or a tuple of them if there are several outputs.

        Raises:
          StopIteration: there are no more data.
          ValueError: the source gave another number of outputs, or a batch of another size.
        """
        data = self._next()
        if self._num_outputs == 1:
            return self._output(0, data, batch_size)
        if not isinstance(data, (tuple, list)) or len(data) != self._num_outputs:
            actual = len(data) if isinstance(data, (tuple, list)) else type(data).__name__
            raise ValueError(f"ExternalSource: the source must give {self._num_outputs} outputs, got {actual}")
        return tuple(self._output(i, x, batch_size) for i, x in enumerate(data))

    def captured(self, batch_size: int, ctx: Any = None) -> Iterator[Any]:
        """Iterates over the data of one epoch. `ctx` has no effect."""
        while True:
            try:
                yield self(batch_size)
            except StopIteration:
                return

    def _next(self) -> Any:
        """The next data of the source. At the end of an iterable it does what `cycle` says."""
        if not self._is_iterable:
            return self._source()
        if self._iterator is None:
            self._iterator = self._new_iterator()
        try:
            return next(self._iterator)
        except StopIteration:
            if self._cycle == "no":
                raise
            self._iterator = self._new_iterator()
            # The new iterator is for the next call.
            if self._cycle == "raise":
                raise
        return next(self._iterator)

    def _new_iterator(self) -> Iterator[Any]:
        """Begins to iterate over the source."""
        return iter(self._source() if inspect.isgeneratorfunction(self._source) else self._source)

    def _output(self, i: int, x: Any, batch_size: int | None) -> Batch | Tensor:
        """Converts the data of output `i`.

        Args:
          batch_size: a sample is repeated to a batch of this size; a batch must have this size. None: neither.
        """
        dtype, layout = self._dtypes[i], self._layouts[i]
        if isinstance(x, _batch.Batch):
            if batch_size is not None and len(x) != batch_size:
                raise ValueError(f"ExternalSource: the source must give batches of {batch_size} samples, got {len(x)}")
            return batch(x, dtype, self._device, layout)
        sample = tensor(x, dtype, layout=layout)
        return sample if batch_size is None else Batch.broadcast(sample, batch_size, self._device)
