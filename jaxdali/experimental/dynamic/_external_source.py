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
    """Takes data from a Python function or iterable: each call takes the next ones.

    Args:
      source: a function without parameters that returns data, also a generator function; or an iterable of data. Data
        are one sample, a `Batch`, or a tuple of these if there are several outputs.
      num_outputs: how many there are.
      cycle: what follows the end of an iterable: "no", False or None: StopIteration, again and again; "quiet" or True:
        it begins anew; "raise": StopIteration, then it begins anew.
      device: where the outputs are put.
      layout, dtype: of the outputs, one for all or a sequence.

    Raises:
      TypeError: `source` is neither a function nor an iterable.
      ValueError: `cycle` is none of these, or needs an iterable; or there is another number of layouts or types than of
        outputs.

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
        iterable = isinstance(source, Iterable) or inspect.isgeneratorfunction(source)
        if not iterable and not callable(source):
            raise TypeError(f"ExternalSource: source must be a function or an iterable, got {type(source).__name__}")
        if not iterable and cycle is not None:
            raise ValueError("ExternalSource: cycle needs a source that is an iterable or a generator function")
        device_of(device)
        self._source: Any = source
        self._iterable, self._cycle = iterable, _CYCLES[cycle]
        self._iterator: Iterator[Any] | None = None
        self._number, self._device = num_outputs, device
        self._layouts = self._each("layout", layout)
        self._dtypes = self._each("dtype", dtype)

    def _each(self, name: str, given: Any) -> list[Any]:
        if isinstance(given, (list, tuple)):
            if len(given) != self._number:
                raise ValueError(f"ExternalSource: {name} has {len(given)} entries for {self._number} output(s)")
            return list(given)
        return [given] * self._number

    def __call__(self, batch_size: int | None = None) -> Any:
        """Takes the next data.

        Args:
          batch_size: samples become batches of so many copies; a batch must have as many samples.

        Returns:
          A `Tensor` or a `Batch`, or a tuple of them if there are several outputs.

        Raises:
          StopIteration: there are no more data.
          ValueError: the source gave another number of outputs, or a batch of another size.
        """
        found = self._next()
        if self._number == 1:
            return self._output(0, found, batch_size)
        if not isinstance(found, (tuple, list)) or len(found) != self._number:
            got = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
            raise ValueError(f"ExternalSource: the source must give {self._number} outputs, got {got}")
        return tuple(self._output(i, x, batch_size) for i, x in enumerate(found))

    def captured(self, batch_size: int, ctx: Any = None) -> Iterator[Any]:
        """Iterates over the data of one epoch. `ctx` has no effect."""
        while True:
            try:
                yield self(batch_size)
            except StopIteration:
                return

    def _next(self) -> Any:
        if not self._iterable:
            return self._source()
        if self._iterator is None:
            self._iterator = self._begin()
        try:
            return next(self._iterator)
        except StopIteration:
            if self._cycle == "no":
                raise
            self._iterator = self._begin()
            if self._cycle == "raise":
                raise
        return next(self._iterator)

    def _begin(self) -> Iterator[Any]:
        return iter(self._source() if inspect.isgeneratorfunction(self._source) else self._source)

    def _output(self, i: int, x: Any, batch_size: int | None) -> Batch | Tensor:
        dtype, layout = self._dtypes[i], self._layouts[i]
        if isinstance(x, _batch.Batch):
            if batch_size is not None and len(x) != batch_size:
                raise ValueError(f"ExternalSource: the source must give batches of {batch_size} samples, got {len(x)}")
            return batch(x, dtype, self._device, layout)
        one = tensor(x, dtype, None, layout)
        return one if batch_size is None else Batch.broadcast(one, batch_size, self._device)
