"""readers.source: the items of a user's data set.

`_data_set.py` checks the form of the items, `_data_set_items.py` reads them, and `_packed_items.py` makes sequences of
them. `fn/_source` has external_source; `_data/source.py` is the interface of both to the executor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.declaration import Range, Whole
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._data.arrays import Arrays
from ..._data.files import as_list
from ._data_set import NAME, DataSet
from ._data_set_items import DataSetItems
from ._packed_items import PackedItems, excess, long_items, packed_specs
from ._reader import MixedArguments, Reader, by_name


class ReadSource(Reader):
    """`readers.source`; the fields are its arguments."""

    name: ClassVar[str] = NAME

    data: DataSet = dataclasses.field(compare=False)
    num_workers: int
    packing: Literal["none", "first_fit", "sequential"]
    packing_seed: int | None
    length: tuple[int, ...]
    pad_id: int
    tokens: tuple[str, ...]

    def __post_init__(self):
        super().__post_init__()
        if not -(2**31) <= self.pad_id < 2**31:
            raise ArgumentError(f"pad_id must be an int32, got {self.pad_id}")
        if self.packing == "none":
            defaults = {"packing_seed": None, "pad_id": 0, "tokens": ("tokens",)}
            if names := [name for name, default in defaults.items() if getattr(self, name) != default]:
                raise ArgumentError(f'{names[0]} is for packing="first_fit" or "sequential"')
            return
        if self.weights is not None:
            raise ArgumentError(
                'weights mixes single items, and is for packing="none": the items of a packed sequence belong together'
            )
        assert self.data.lengths is not None
        long = long_items(self.data.lengths, self.length)
        if len(long) and (self.on_error == "raise" or len(long) == len(self.data)):
            advice = ', and on_error="skip" leaves it out' if len(long) < len(self.data) else ""
            raise ArgumentError(
                f"{excess(self.data, self.data.lengths, int(long[0]), self.length)}: items stay whole; a larger length "
                f"packs it{advice}"
            )

    @property
    def outputs(self) -> dict[Any, Spec]:
        """The outputs by name; of items that are no dictionaries, their numbers are the names."""
        if self.packing != "none":
            return packed_specs(self.data, self.tokens, self.length)
        keys = self.data.keys if isinstance(self.data.keys, tuple) else range(len(self.data.specs))
        return dict(zip(keys, self.data.specs, strict=True))

    @property
    def num_arrays(self) -> int:
        return len(self.outputs)

    def open(self) -> DataSetItems | PackedItems:
        if self.packing == "none":
            return DataSetItems(self.data, self.num_workers, self.weights is not None)
        return PackedItems(
            self.data, self.num_workers, self.packing, self.length, self.tokens, self.pad_id, self.packing_seed
        )


def _check_lengths(
    lengths: Any, group_by_length: int, packing: str, length: Sequence[int], num_items: int
) -> np.ndarray | None:
    """The argument `lengths` as an array, of packed items ``i64[items, limits]``; None if it is not given. Raises
    ArgumentError if it does not fit.
    """
    if packing == "none":
        if length:
            raise ArgumentError('length is for packing="first_fit" or "sequential"')
        if (lengths is None) != (group_by_length == 0):
            raise ArgumentError("lengths and group_by_length must be given together, or lengths, length and packing")
        if lengths is None:
            return None
    else:
        if group_by_length:
            raise ArgumentError(
                f'group_by_length is for packing="none": of packing="{packing}" all sequences have one length'
            )
        if lengths is None or not length:
            raise ArgumentError(f'packing="{packing}" needs length, and lengths with a number for each item')
    try:
        array = np.asarray(lengths)
    except ValueError:  # lists of different lengths
        raise ArgumentError(f"lengths must have equally many numbers for each of the {num_items} items") from None
    if packing == "none":
        if array.shape != (num_items,) or array.dtype.kind not in "iuf":
            raise ArgumentError(
                f"lengths must have a number for each of the {num_items} items, got shape {array.shape} of {array.dtype}"
            )
        return array
    if array.ndim == 2 and array.shape[1] != len(length):
        raise ArgumentError(
            f"lengths has {array.shape[1]} columns, and length {len(length)} limit{'s' * (len(length) > 1)}: there "
            "must be equally many"
        )
    shapes = [(num_items, len(length))] + [(num_items,)] * (len(length) == 1)
    if array.shape not in shapes or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be integers of shape {' or '.join(map(str, shapes))}, for each item a number for each "
            f"limit in length, got shape {array.shape} of {array.dtype}"
        )
    if array.size and array.min() < 0:
        raise ArgumentError(f"lengths must not be negative, got {array.min()}")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ArgumentError(f"lengths must fit into int64, got {array.max()}")
    return np.ascontiguousarray(array.reshape(shapes[0]), np.int64)


def _has_names(part: Any) -> bool:
    """Whether a data set is a dictionary of arrays; one with numbers as keys has an item for each."""
    return isinstance(part, Mapping) and all(isinstance(key, str) for key in part)


def _rows_of_arrays(part: Any) -> int | None:
    """The number of rows of a tuple or list of arrays that can't be items, as they have different forms."""
    if not isinstance(part, (tuple, list)) or not 2 <= len(part) <= 8:
        return None
    if not all(hasattr(x, "__array__") and np.ndim(x) for x in part):
        return None
    return len(part[0]) if len({len(x) for x in part}) == 1 and len({(x.dtype, x.ndim) for x in part}) > 1 else None


@operator_function(NAME)
def source(
    dataset: Any,
    *,
    num_workers: Annotated[int, Range(0, 256)] = 0,
    layout: str | Sequence[str | None] | Mapping[str, str] | None = None,
    shape: Any = None,
    lengths: Any = None,
    group_by_length: Annotated[Whole, Range(0)] = 0,
    packing: Literal["none", "first_fit", "sequential"] = "none",
    length: Annotated[int | Sequence[int] | None, Range(1)] = None,
    tokens: str | Sequence[str] = "tokens",
    pad_id: int = 0,
    packing_seed: Annotated[int, Range(0)] | None = None,
    **order: Unpack[MixedArguments],
) -> DataNode | list[DataNode] | dict[str, DataNode]:
    """Reads the items of a Python data set, or the rows of arrays. Not in DALI.

    A data set is any object with ``__len__`` and ``__getitem__``, such as `torch.utils.data.Dataset`, Grain's
    ``RandomAccessDataSource``, Hugging Face's ``datasets``, and lists. The reader shuffles, splits into shards, pads,
    and resumes from checkpoints like every reader; the data set only provides item i.

    A dictionary of arrays with equally many rows is a data set, too: item i is a dictionary with row i of each. Arrays
    are read much faster than items, and not copied, so those of ``np.load(file, mmap_mode="r")`` need no memory. Lists
    may be among them, also of bytes. Make the dictionary outside of a pipeline's definition, so that shards share it:
    ``dict(np.load("arrays.npz"))``.

    An item is a value, a tuple of values, or a dictionary of values. A value is an array (NumPy, or something that
    NumPy converts: a torch tensor, without its gradient; a PIL image; a list of numbers), a number, a string, or bytes.
    A list of bytes, or of uint8 vectors, is ``uint8[files, longest]``, in which zeros follow shorter ones;
    ``layout={key: "F*"}`` says that they are files, and allows an empty list. Hugging Face's ``datasets`` represent
    images that are not decoded by a dictionary with ``bytes`` and ``path``; its value is the bytes. The first item is
    read while the pipeline is defined. It determines how many values there are, their types and their dimensions; a
    later item that differs fails.

    With ``num_workers=0``, items are read one after another in a thread of the pipeline, beside the training loop. This
    suits data sets that are fast, or whose work is done in libraries that release the interpreter's lock. Work that
    holds the lock (Python loops, tokenizers) needs processes: ``num_workers=4`` starts four processes with the first
    batch, by `spawn`. Each gets a copy of the data set, which must therefore be picklable, and returns arrays through
    shared memory. Classes that are typed into a notebook or defined in a function need the package cloudpickle for
    that. Order and checkpoints do not depend on the number of processes. For streams and generators, which have no item
    i, use `external_source`, which resumes if they have get_state and set_state.

    With `packing`, a sample is a sequence of items, for models of text and images. Items, which must be dictionaries,
    stay whole. Which items make a sequence follows from `lengths` alone, when the pipeline is built, and is the same in
    all epochs; sequences are then shuffled, split into shards, resumed and redistributed like any samples. The values
    of a sequence's F items become:

    * those in `tokens`, 1-D integers: one after another, ``int32[length]``, padded by `pad_id`. Beside each come
      ``<key>_segment_ids``, the number of the item that a token belongs to, from 1, 0 in the padding; and
      ``<key>_positions``, the place of the token in its item, from 0; both ``int32[length]``.
    * bytes, one file per item: ``uint8[F, longest]`` of layout "F*", where zeros follow shorter files. A long file makes
      all rows of its sequence long, so files of similar sizes take the least memory.
    * several files per item, or none, with ``layout={key: "F*"}``: the files of all items, and
      ``<key>_segment_ids``, ``int32[files]``, the number of the item that a file belongs to, from 1, which
      ``fn.decoders.image_patches(..., segments=...)`` takes.
    * numbers ``[F]``, and arrays of equal shape ``[F, ...]``, with "F" before their layout.

    Args:
      dataset: the data set, or a dictionary of arrays. With `weights`, a sequence of data sets whose items have the same form.
      num_workers: the number of processes that read; 0: none.
      layout: one letter for each axis of a value. A string if items are one value; else a list with one string per
        value, or a dictionary by key; None for a value without a layout.
      shape: the extents that all items share, None for those that vary, e.g. ``(None, None, 3)``; later operators are
        compiled with them. For several values, a list or dictionary as for `layout`. Default: only the shape of numbers
        is known.
      lengths: for `group_by_length`, a number for each item, e.g. its number of tokens; with `weights`, those of all
        data sets one after another. For `packing`, integers ``[items]``, or ``[items, limits]`` where `length` has
        several limits.
      group_by_length: the batch size of a shard. Each group of this many consecutive items gets similar lengths, so
        that padding wastes little: every 50 batches of the (shuffled) order are sorted by length and cut into batches,
        which are then shuffled. With `pad_last_batch`, the batches remain aligned in all epochs. 0: items come in the
        shuffled order.
      packing: "none": a sample is an item. "first_fit": an item goes to the first of 64 open sequences that has room
        for it in every limit; if none has, the one with the least room left, in whichever limit is tightest, is closed.
        "sequential": items stay in order, and one that does not fit begins the next sequence.
      length: the length of a packed sequence, in the unit of `lengths`; or a list of limits, e.g. of tokens and of
        patches, ``(2048, 4096)``, of which the first is the number of tokens.
      tokens: the key or keys of the values that are concatenated; an empty list: none.
      pad_id: the token that fills the end of a sequence.
      packing_seed: a seed to shuffle items before they are packed; None: they are taken in order.
      weights: in what proportion the items of the data sets come: one number for each data set in `dataset`. The data
        sets are mixed evenly, and an epoch has each item at least once: items of a data set that is too small for its
        weight are repeated. Not with `packing`.
      shuffle_after_epoch: whether to shuffle the list anew in each epoch, in the same way for all shards, each of which
        keeps reading its part of the list; with `weights`, the items of all data sets are shuffled.
      metadata: what to give of each item besides the arrays, as Python objects for `python_function` and for the lists
        of a batch: "index", the number of the item in the list; "source_info"; or keys of items that are dictionaries,
        whose values are then given as they are, whatever they are, and are no arrays. With `packing`, "index" is the
        number of the sequence, and keys give a list with the values of its items.
      on_error: what happens when an item can't be read. "raise": its batch fails; "replace": a later item replaces it;
        "skip": its batch is made without it. `Pipeline.bad_samples` reports the items of the last two. With `packing`,
        the same happens to the item's sequence; and an item that is longer than `length` is an error with "raise", and
        is left out with the others, with a warning.

    Returns:
      One output, a list of outputs, or a dictionary of outputs, in the form of the items, with `packing` also segments
      and positions. Strings and bytes are ``uint8[bytes]``, numbers have the shape (). Their source_info is the class of
      the data set and the number of the item, of packed ones that of the sequence's first and how many more there are.

    Raises:
      TypeError: `dataset` has no ``__len__`` or no ``__getitem__``.
      ValueError: arguments contradict each other or are out of range, or a data set is empty.
      RuntimeError: the first item can't be read; or, while the pipeline runs, the data set can't be pickled for
        `num_workers`, or a process ended.
      SampleError: an item can't be read (with the traceback of the exception), or differs in form from the first one; or, with
        `packing`, has so many more tokens than `lengths` says that its sequence is too long, or a value of another shape
        than that of the sequence's first item.

    Example:
      >>> class Squares(torch.utils.data.Dataset):
      ...     def __len__(self):
      ...         return 1000
      ...     def __getitem__(self, i):
      ...         return {"image": np.full((8, 8, 3), i % 256, np.uint8), "label": i * i}
      >>> @data_iterator(output_map=["image", "label"], reader_name="squares")
      ... def iterator_fn(num_shards=1, shard_id=0):
      ...     item = fn.readers.source(Squares(), name="squares", shuffle="global", num_shards=num_shards, shard_id=shard_id)
      ...     return fn.flip(item["image"]), item["label"]
      >>> model = jaxdali.vlm.processors["qwen2-vl"]
      >>> photos = [{"photo": open(path, "rb").read(), "tokens": tokenizer.encode(caption)} for path, caption in captions]
      >>> num_patches = model.num_patches(jd.peek_image_shape([x["photo"] for x in photos]))
      >>> lengths = [(len(x["tokens"]), n) for x, n in zip(photos, num_patches)]
      >>> packed = fn.readers.source(photos, lengths=lengths, length=(2048, 16384), packing="first_fit", shuffle="global")
      >>> tokens, segments = packed["tokens"], packed["tokens_segment_ids"]
      >>> size = model.size(fn.peek_image_shape(packed["photo"]))
      >>> patches, patch_segments, *_ = fn.decoders.image_patches(
      ...     packed["photo"], size=size, length=16384, **model.resize, **model.patches)
    """
    weights = order.get("weights")
    if weights is None:
        parts: Sequence[Any] = [dataset]
    else:
        if not isinstance(dataset, (list, tuple)) or len(dataset) != len(as_list(weights)):
            raise ArgumentError(
                f"weights is for a sequence of data sets, with one number for each; got a {type(dataset).__name__}"
            )
        parts = dataset
    for part in parts:
        if (rows := _rows_of_arrays(part)) is not None:
            raise ArgumentError(
                f"{NAME}: the data set is a {type(part).__name__} of arrays with {rows} rows each, which would be its items: "
                'give a dictionary, such as {"image": images, "label": labels}'
            )
        if hasattr(part, "iloc") and hasattr(part, "columns"):
            raise ArgumentError(
                f"{NAME}: a {type(part).__name__} has columns, not items, by its keys: dict(frame) gives them"
            )
    if num_workers and any(map(_has_names, parts)):
        raise ArgumentError(f"{NAME}: num_workers is for data sets whose items take work in Python, and not for arrays")
    parts = [Arrays(part, NAME) if _has_names(part) else part for part in parts]
    names = as_list(order.get("metadata") or ())
    keys = [n for n in names if n not in ("index", "source_info")]
    data = DataSet(parts, layout, shape, keys, as_list(tokens) if packing != "none" else ())
    limits = () if length is None else tuple(as_list(length))
    data.lengths = _check_lengths(lengths, group_by_length, packing, limits, len(data))
    op = ReadSource(
        data=data,
        num_workers=num_workers,
        group_by_length=group_by_length,
        packing=packing,
        packing_seed=packing_seed,
        length=limits,
        pad_id=pad_id,
        tokens=tuple(as_list(tokens)),
        **ReadSource.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    if isinstance(data.keys, tuple):
        return by_name(op, [*op.outputs], nodes)
    return [nodes] if isinstance(nodes, DataNode) and data.keys is not None else nodes
