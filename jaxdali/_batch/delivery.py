"""`Delivery`: the form in which an executor delivers its batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Sharding

from .._core.declaration import Whole, check_fields
from .._plan.plan import Plan


class ShardArrays(tuple[jax.Array, ...]):
    """An output as the arrays ``[B, ...]`` of the local shards, each on its shard's device."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(x.nbytes for x in self)


Finish = Callable[[Plan, tuple[Any, ...]], tuple[Any, ...]]  # converts a batch's arrays, see `Delivery.finish`


@dataclasses.dataclass(frozen=True)
class RaggedForm:
    """The form in which an iterator gives an output whose samples differ in shape.

    Attributes:
      limits: the extents to which the leading axes of samples are padded; None: no padding, the output is a list of
        arrays.
      fill: the value of the padding.
      lengths: the sharding of the lengths; None: as for an output without one.
    """

    limits: tuple[int, ...] | None
    fill: float = 0
    lengths: Sharding | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    """The form in which batches are delivered.

    Attributes:
      as_arrays: whether outputs are global jax.Arrays (for an iterator); otherwise values of the single shard (for
        Pipeline.run).
      shardings: of the outputs, in their order; further outputs have the first one's. None: all on the one device.
      stacked: whether outputs get a leading axis of the shards, ``(shards, B, ...)``, which the sharding shards.
      per_shard: whether outputs are `ShardArrays`, instead of global arrays.
      padded: whether batches keep their size if samples are missing.
      reader: name of the source that determines the epoch and position of samples; None: the first.
      x64: whether `as_arrays` keeps 64-bit types; None: as set in JAX by the user.
      finish: with `as_arrays`, converts a batch's arrays to another framework, in the thread that checks the batch. Its
        exceptions are the batch's errors.
      as_sample_lists: numbers of the outputs that are given as lists of samples, which may differ in shape; for one
        graph without a sharding.
      names: the iterator's names of the outputs, for messages.
      ragged: the form of outputs whose samples may differ in shape, by number.
    """

    as_arrays: bool = True
    shardings: Sequence[Sharding | None] | None = None
    stacked: bool = False
    per_shard: bool = False
    padded: bool = False
    reader: str | None = None
    x64: bool | None = None
    finish: Finish | None = None
    as_sample_lists: tuple[Whole, ...] = ()
    names: tuple[str, ...] = ()
    ragged: tuple[RaggedForm | None, ...] = ()

    def __post_init__(self):
        """Checks the fields, and that they can be combined. Raises TypeError or ValueError."""
        check_fields("iterator", self)
        if not self.as_arrays and (
            self.shardings or self.stacked or self.per_shard or self.finish or self.as_sample_lists or self.ragged
        ):
            raise ValueError("only arrays have a sharding, a leading axis of shards, or another form")
        if duplicates := [i for i in self.as_sample_lists if self.ragged_form(i) is not None]:
            raise ValueError(f"outputs {duplicates} can't have two forms")

    def shardings_of_outputs(self, num_outputs: int) -> tuple[Sharding | None, ...]:
        """The sharding of each output; None: it is on the one device."""
        if self.shardings is None:
            return (None,) * num_outputs
        return *self.shardings[:num_outputs], *[self.shardings[0]] * (num_outputs - len(self.shardings))

    def ragged_form(self, output: int) -> RaggedForm | None:
        """The form of an output whose samples may differ in shape; None: they may not."""
        return self.ragged[output] if output < len(self.ragged) else None


VALUES = Delivery(as_arrays=False)  # outputs are `Value`s of the single shard
