"""`iter_dataset`: a dataset of Grain whose elements are the batches of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grain
import jax

from ..._core.tracebacks import boundary
from ..._iterator.base import BaseIterator
from ..._iterator.batch import arrays_of
from ..._runner.shutdown import CLOSED_ITERATOR


class PipelineDatasetIterator(grain.DatasetIterator[Any]):
    """Takes the batches of an iterator of jaxdali. Its state is that of the iterator.

    Attributes:
      iterator: the iterator of jaxdali.
    """

    def __init__(self, iterator: BaseIterator):
        super().__init__()
        self.iterator = iterator

    def __next__(self) -> Any:
        if self._closed:  # `grain.DatasetIterator.close` promises this error
            raise ValueError(CLOSED_ITERATOR)
        stats: Any = self._stats  # its annotations are not those of its results
        with stats.record_self_time():
            batch = next(self.iterator)
        return stats.record_output_spec(batch)

    def get_state(self) -> dict[str, Any]:
        return self.iterator.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.iterator.set_state(state)

    def start_prefetch(self) -> None:
        self.iterator.start_prefetch()

    def close(self) -> None:
        super().close()
        self.iterator.close()

    def __del__(self):
        """Closes nothing, unlike Grain's method: an iterator of jaxdali ends its threads when it is collected."""

    @property
    def element_spec(self) -> Any:
        """Shape and dtype of each array of the next batch, in the form of a batch."""
        return _element_spec(self.iterator)

    def _get_next_index(self) -> NoReturn:
        raise ValueError(f"{self} has no index: get_state() tells its position")

    def _set_next_index(self, index: int) -> NoReturn:
        raise ValueError(f"{self} has no index: set_state(state) goes to a position")

    def __reduce__(self) -> NoReturn:
        self.iterator.__reduce__()

    def __str__(self) -> str:
        return f"{type(self).__name__}({type(self.iterator).__name__})"


class PipelineDataset(grain.IterDataset[Any]):
    """The batches of iterators of jaxdali, for `iter_dataset`.

    Args:
      iterator_fn: makes an iterator.
      arguments: of `iterator_fn`.
    """

    def __init__(self, iterator_fn: Callable[..., BaseIterator], arguments: Mapping[str, Any]):
        super().__init__()
        self._iterator_fn = iterator_fn
        self._arguments = arguments
        self._spec: Any = None  # of the elements, once it was asked for

    def __iter__(self) -> PipelineDatasetIterator:
        iterator = self._make_iterator()
        # Transformations of Grain ask again after the end, and rely on another StopIteration.
        iterator._auto_resets = False
        return PipelineDatasetIterator(iter(iterator))

    def _make_iterator(self) -> BaseIterator:
        iterator = self._iterator_fn(**self._arguments)
        if not isinstance(iterator, BaseIterator):
            raise TypeError(
                f"{self}: the function returned a {type(iterator).__name__}, which is not an iterator of jaxdali: make "
                "it with data_iterator, or return DALIGenericIterator(...) over pipelines"
            )
        return iterator

    @property
    def element_spec(self) -> Any:
        """Shape and dtype of each array of the first batch, in the form of a batch."""
        if self._spec is None:
            self._spec = _element_spec(self._make_iterator())
        return self._spec

    _element_spec = element_spec  # for `grain.experimental.get_element_spec`

    def __str__(self) -> str:
        return f"iter_dataset({getattr(self._iterator_fn, '__name__', self._iterator_fn)})"

    __repr__ = __str__

    # --- refused uses -------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(
            f"{self} has no random access; where Grain takes a MapDataset, as in ElasticIterator, pass "
            "grain.MapDataset.source(jaxdali.plugin.grain.source(...))"
        )

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> NoReturn:
        """Refuses to give a worker its part of the batches, which `multithread_prefetch` asks for."""
        self._refuse_workers()

    def __reduce__(self) -> NoReturn:
        """Refuses to be sent to a worker process, as `mp_prefetch` does."""
        self._refuse_workers()

    def __deepcopy__(self, memo: Any) -> PipelineDataset:
        return self  # for `multithread_prefetch`, which copies a dataset before it calls `set_slice`

    def _refuse_workers(self) -> NoReturn:
        raise TypeError(
            f"{self} can't be divided among workers of Grain or sent to other processes (mp_prefetch, "
            "multithread_prefetch): its pipeline makes batches ahead by itself, in native threads. Leave the call out; "
            "num_threads of the pipeline is the number of threads"
        )


def _element_spec(iterator: BaseIterator) -> Any:
    """Shape and dtype of each array of the next batch, in the form of a batch. No batch is lost."""
    spec = getattr(iterator, "element_spec", None)  # of iterators for JAX
    if spec is not None:
        return spec
    state = iterator.get_state()
    batch = next(iterator, None)
    iterator.set_state(state)
    if batch is None:
        raise RuntimeError("the data have ended: read element_spec before that")
    return jax.tree.map(
        lambda x: grain.experimental.ShapeDtypeStruct(shape=tuple(x.shape), dtype=x.dtype),
        [arrays_of(tensors) for tensors in batch],
    )


@boundary
def iter_dataset(iterator_fn: Callable[..., Any], /, **arguments: Any) -> grain.IterDataset[Any]:
    """Returns a `grain.IterDataset` whose elements are the batches of a pipeline.

    Grain's transformations of an `IterDataset` take it: ``map``, ``filter``, ``grain.IterDataset.mix``,
    `grain.experimental.device_put` and so on. Batches keep their sharding, unless a transformation makes NumPy arrays
    of them, as ``batch`` does.

    Each iterator over the dataset is a `grain.DatasetIterator` that takes the batches of a new iterator of jaxdali, from
    the first one on. It ends with the epoch, also if that iterator has ``auto_reset=True``. So with a seed, all loops
    over the dataset have the same order and the same random numbers, and so has
    `grain.experimental.RepeatIterDataset`. To shuffle each epoch differently, take several epochs from one iterator:
    give `data_iterator` the argument ``repeat=True``, with which it never ends.

    The state of an iterator is that of jaxdali's iterator, see its `set_state`. Grain's handler for Orbax saves it, as
    ``grain.checkpoint.CheckpointSave(iterator)``, and restores it in a program with any number of devices, but the same
    number of processes. Where that number changes, save ``orbax.checkpoint.args.JsonSave(iterator.get_state())``.

    The iterator also has the properties ``element_spec``, and ``iterator``: that of jaxdali, for its `statistics` and
    `bad_samples`. Its pipeline makes batches ahead in threads of its own, so it can't be divided among workers of Grain
    (``mp_prefetch``, ``multithread_prefetch``).

    Example:
      >>> @data_iterator(output_map=["images", "labels"], reader_name="photos", repeat=True)
      ... def train():
      ...     jpegs, labels = fn.readers.file(file_root="photos", random_shuffle=True, name="photos")
      ...     return fn.resize(fn.decoders.image(jpegs), size=(256, 256)), labels
      >>> dataset = iter_dataset(train, batch_size=8, seed=0)
      >>> iterator = iter(dataset.map(lambda batch: {**batch, "labels": batch["labels"][:, 0]}))
      >>> next(iterator)["labels"].shape
      (8,)

    Args:
      iterator_fn: a function that makes an iterator each time: the result of `data_iterator`, or one that returns a
        `DALIGenericIterator` of JAX or PyTorch, or any other iterator of jaxdali, over new pipelines.
      arguments: the arguments of `iterator_fn`.

    Raises:
      TypeError: `iterator_fn` is not a function; when an iterator is made: it returned something else.
    """
    if not callable(iterator_fn):
        raise TypeError(
            "iter_dataset takes a function that makes iterators, such as data_iterator returns, "
            f"got a {type(iterator_fn).__name__}"
        )
    return PipelineDataset(iterator_fn, arguments)
