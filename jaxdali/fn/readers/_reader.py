"""The operator that all readers of lists are, and the arguments that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from ..._core.building import warn
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import SourceOperator
from ..._core.operator_function import Default, SeededHints
from ..._data.files import as_list
from ..._data.list_source import ListSource, OnError
from ..._data.records import Mixed, Records
from ..._data.source import Source
from ..._data.storage import Storage
from ..._data.walk import Order


class ReaderHints(SeededHints, total=False):
    """Hints to DALI's readers, which every reader accepts. They have no effect."""

    lazy_init: bool | None
    prefetch_queue_depth: int | None
    read_ahead: bool | None
    skip_cached_images: bool | None
    tensor_init_bytes: int | None


class ReaderArguments(ReaderHints, total=False):
    """The arguments of every reader."""

    random_shuffle: Annotated[
        bool,
        Default(
            False, "whether to shuffle the list before it is split into shards, and each shard anew in each epoch."
        ),
    ]
    initial_fill: Annotated[
        int,
        Range(1),
        Default(
            1024,
            "size of the shuffle buffer. A small buffer shuffles only locally, and 1 does not shuffle. The buffer holds\n"
            "    indices, not data, so a large one is cheap.",
        ),
    ]
    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the whole list anew in each epoch, alike for all shards, each of which reads the same part.",
        ),
    ]
    shuffle_after_epoch_seed: Annotated[
        int | None, Default(None, "a seed for `shuffle_after_epoch`. Default: a fixed seed, as in DALI.")
    ]
    shuffle: Annotated[
        Literal["global"] | None,
        Default(
            None,
            '"global": the order of each epoch is a new permutation of the whole list, by `seed`, which must be the same for\n'
            "    all shards. Not in DALI.",
        ),
    ]
    num_shards: Annotated[
        int, Range(1), Default(1, "number of parts of the list; part i of S begins at entry ``floor(i*N/S)``.")
    ]
    shard_id: Annotated[int, Range(0), Default(0, "the part to read, ``0 .. num_shards - 1``.")]
    stick_to_shard: Annotated[
        bool, Default(False, "whether to read the same part in every epoch, instead of moving on to the next part.")
    ]
    pad_last_batch: Annotated[
        bool,
        Default(
            False,
            "whether to repeat a shard's last sample until all shards are equally long and the last batch is full.",
        ),
    ]
    seed: Annotated[
        int, Default(-1, "the seed of `random_shuffle` and `shuffle`; a negative one means the pipeline's.")
    ]
    on_error: Annotated[
        OnError,
        Default(
            "raise",
            'what happens when a record can\'t be read. "raise": its batch fails; "replace": a later record of the list replaces\n'
            '    it; "skip": its batch is made without it. `Pipeline.bad_samples` reports the last two. Not in DALI.',
        ),
    ]
    metadata: Annotated[
        str | Sequence[str] | None,
        Default(
            None,
            "what to give of each record besides the arrays: names, each of which adds an output of Python objects after the\n"
            "    others. Only `python_function` takes them, and a batch has them as lists, in the order of its samples; they never\n"
            '    become part of a program. Here: "index", the number of the record in the list; "source_info". Not in DALI.',
        ),
    ]
    device: Annotated[Literal["cpu"] | None, Default(None, "")]
    name: Annotated[str | None, Default(None, "the name of the reader, for ``reader_name`` and error messages.")]


class StoredArguments(ReaderArguments, total=False):
    """The arguments of readers whose paths may be URLs."""

    storage: Annotated[
        Storage | None, Default(None, "how URLs are read, a `jaxdali.Storage` (not in DALI). All paths may be URLs.")
    ]


def storage_of(data: DataNode) -> Storage:
    """The `Storage` of the reader that data come from, whose limits apply to what is made of them."""
    # Other sources have none, and some readers are called without one.
    return getattr(data.node.source and data.node.source.op, "storage", None) or Storage()


class MixedArguments(ReaderArguments, total=False):
    """The arguments of readers of containers, which may be mixed."""

    weights: Annotated[
        float | Sequence[float] | None,
        Default(
            None,
            "in what proportion the records of the containers (files, archives, databases) come, e.g. ``(0.7, 0.3)``. They are\n"
            "    mixed evenly, and an epoch has each record at least once: records of a container that is too small for its weight\n"
            "    are repeated. Not in DALI.",
        ),
    ]
    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the order of the containers anew in each epoch, in the same way for all shards, each reading the\n"
            "    same part. The records of each stay together, in their order; with `weights` all records are shuffled.",
        ),
    ]


class ContainerArguments(MixedArguments, StoredArguments, total=False):
    """The arguments of readers of containers whose paths may be URLs."""

    shuffle_after_epoch: Annotated[
        bool,
        Default(
            False,
            "whether to shuffle the order of the containers anew in each epoch, in the same way for all shards, each reading the\n"
            "    same part. The records of each stay together, in their order; with `weights` all records are shuffled.",
        ),
    ]


class Reader(SourceOperator, Order):
    """An operator that reads a list. Its fields besides those of `Order` define the list, and the data of its records.

    Attributes:
      on_error: the reaction to a record that can't be read. "raise": its batch is a `SampleError`; "replace": a later
        record of the list replaces it; "skip": its batch is made without it, and nothing else changes: positions,
        epochs, shards and checkpoints are the same. `bad_samples` reports the last two.
      weights: the weights by which containers are mixed, see `Mixed`; for lists with `bounds`.
      storage: how paths that are URLs are read; `open` passes it to its `Files`.
    """

    on_error: OnError = "raise"
    storage: Storage | None = None
    weights: float | Sequence[float] | None = None

    def __post_init__(self):
        """Checks the arguments. Raises ArgumentError."""
        SourceOperator.__post_init__(self)
        Order.__post_init__(self)
        if self.weights is not None and min(as_list(self.weights), default=0) <= 0:
            raise ArgumentError(f"weights must be above 0, got {list(as_list(self.weights))}")
        if self.shuffle_after_epoch_seed is not None and not self.shuffle_after_epoch:
            warn(f"{self.name}: shuffle_after_epoch_seed has no effect without shuffle_after_epoch=True")

    @classmethod
    def shared(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `Reader` from a function's `ReaderArguments`, for a function that makes its operator in its
        body.
        """
        names = {f.name for f in cls.fields()}
        return {n: x for n, x in arguments.items() if n in names}

    def open(self) -> Records:
        """Makes the list when the pipeline is built. Raises RuntimeError if there is nothing to list."""
        raise NotImplementedError(self.name)

    def open_mixed(self) -> Records:
        """`open`, mixed by the weights."""
        return self.open() if self.weights is None else Mixed(self.open(), as_list(self.weights))

    def make_source(self, ops: Sequence[Reader], seed: int) -> Source:
        """See `SourceOperator.make_source`. Opens a list for each set of arguments, besides those of the order."""
        lists: dict[Any, Records] = {}
        list_of_shard = []
        order_fields = {f.name for f in dataclasses.fields(Order)}
        for op in ops:
            key = tuple(getattr(op, f.name) for f in dataclasses.fields(op) if f.name not in order_fields)
            if key not in lists:  # shards with the same arguments share one list
                lists[key] = op.open_mixed()
            list_of_shard.append(lists[key])
        # For all shards, on_error and metadata are those of the first one.
        return ListSource(list_of_shard, ops, seed, ops[0].on_error, ops[0].metadata_names)


def by_name(op: Reader, names: Sequence[str], nodes: Any) -> dict[str, Any]:
    """The outputs of a reader as a dictionary: the arrays have the names `names`, and the metadata their own.

    Args:
      nodes: the reader's outputs; a single one is not in a list.

    Raises:
      ArgumentError: metadata and an array have the same name.
    """
    ambiguous = [n for n in op.metadata_names if n in names]
    if ambiguous:
        raise ArgumentError(
            f"metadata has {ambiguous[0]!r}, which is also the name of an array: leave out one of them; "
            "fn.python_function can make an array of the metadata"
        )
    all_names = (*names, *op.metadata_names)
    return dict(zip(all_names, nodes if len(all_names) > 1 else [nodes], strict=True))
