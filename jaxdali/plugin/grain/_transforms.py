"""`BatchTransform` and `SampleKey`: functions of `jaxdali.dynamic` as transforms of Grain."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grain
import jax
import numpy as np

from ..._core.building import user_line
from ..._core.errors import OperatorError, SampleError, quoted
from ..._core.tracebacks import boundaries
from ...dynamic._batch import Batch
from ._worker import prepare_worker

_NAME = "plugin.grain.BatchTransform"
_EMPTY = inspect.Parameter.empty
_KEY_SHAPE = (2,)  # words of a key of the generator threefry
_NO_FILE = "<dynamic-code>"  # the file that cloudpickle names for functions that it has sent by value


@dataclasses.dataclass(frozen=True)
class SampleKey(grain.transforms.RandomMap):
    """Gives each sample a key for random functions, drawn by Grain's generator for its index.

    A sample that is a dictionary gets the key as another entry; a tuple gets it as its last element; of any other
    sample, a tuple of sample and key is made. The key is ``rng.integers(2**32, size=2, dtype=np.uint32)``: raw data of
    a JAX key, which the functions of `jaxdali.dynamic` take. So samples have the same keys in every run with the same
    seed, also after a checkpoint, and for any number of threads and workers.

    Place it before the samples are batched, and before a ``filter``: after one, each worker process counts its own
    samples. Grain needs a seed: ``dataset.seed(1)``, or that of the sampler.

    Args:
      name: name of the entry in dictionaries.

    Raises:
      ValueError: raised for a sample that has an entry of this name, or if the sampler of a `DataLoader` has no seed.

    Example:
      >>> dataset = dataset.seed(1).random_map(SampleKey())
      >>> loader = grain.DataLoader(operations=[SampleKey(), grain.transforms.Batch(64, batch_fn=augment)], ...)
    """

    name: str = "key"

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise TypeError(f"plugin.grain.SampleKey: name must be a str, got {type(self.name).__name__}")

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """The sample with its key."""
        if rng is None:
            raise ValueError("plugin.grain.SampleKey: the sampler has no seed: pass it one, as IndexSampler(seed=...)")
        key = rng.integers(2**32, size=2, dtype=np.uint32)
        if isinstance(element, Mapping):
            if self.name in element:
                raise ValueError(
                    f"plugin.grain.SampleKey: the sample has an entry {self.name!r}: choose another name=; its entries are "
                    f"{quoted(list(element))}"
                )
            return {**element, self.name: key}
        return (*element, key) if isinstance(element, tuple) else (element, key)


@boundaries
class BatchTransform(grain.transforms.Map):
    """Makes a batch by a function of a list of samples, such as one of `jaxdali.dynamic`, plain or of `jd.jit`.

    Pass it to Grain as the function that makes batches: ``dataset.batch(64, batch_fn=BatchTransform(function))``, or
    ``grain.transforms.Batch(64, batch_fn=BatchTransform(function))`` in the operations of a `DataLoader`. It is also a
    `grain.transforms.Map`, for elements that are lists of samples, or batches that Grain has stacked.

    Samples may be:

    * dictionaries: the function gets those entries that its parameters name, and returns a dictionary of new entries.
      Entries that it does not name are stacked, as Grain does, and added.
    * tuples: the function gets each element as an argument, and returns the batch.
    * anything else: it is the only argument, and the function returns the batch.

    Each argument has a value for every sample: a list of arrays or of files' bytes, which may differ in shape; an array
    ``[B]`` of numbers; or the keys that `SampleKey` gives, ``uint32[B, 2]``, for ``key=``. Nested structures have such
    values as leaves. An element that is no list is a batch already, and is passed as it is.

    `MapDataset.to_iter_dataset` makes elements ahead, by default 500 in 16 threads, and after ``batch`` these are
    batches: give it smaller numbers, as in the example. In Grain's worker processes functions run in one native thread,
    unless ``worker_init_fn`` of `mp_prefetch` calls `jaxdali.dynamic.set_num_threads`, and JAX does not look for
    accelerators.

    Args:
      function: the function.

    Returns:
      Batches, whose values are NumPy arrays, so that Grain can pass them between processes: batches of
      `jaxdali.dynamic` and JAX arrays are converted, without a copy if they are on the CPU.

    Raises:
      TypeError: raised if samples lack an entry that a parameter names, or the function returns no dictionary although
        there are other entries.
      ValueError: raised if there are no samples, or they differ in structure; if the samples of a result differ in shape
        (resize or pad them, or return ``list(batch)``), or those of an entry that the function does not name.
      SampleError: raised by functions of `jaxdali.dynamic`; `index` is the sample's number in its batch. The line in
        errors is that of the call in the function, or of `BatchTransform` if the function is one program, as of
        `jd.jit`.

    Example:
      >>> @jd.jit
      ... def augment(image, key):
      ...     crop_key, flip_key = jd.random.split(key)
      ...     images = jd.resize(jd.decoders.image_random_crop(image, key=crop_key), size=(224, 224))
      ...     return {"image": jd.flip(images, horizontal=jd.random.coin_flip(key=flip_key))}
      >>> dataset = grain.MapDataset.source(source).seed(1).shuffle().random_map(SampleKey())
      >>> dataset = dataset.batch(64, batch_fn=BatchTransform(augment))
      >>> dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    """

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise TypeError(f"{_NAME} takes a function of batches, got {type(function).__name__}")
        self._line = user_line()
        code = getattr(inspect.unwrap(function), "__code__", None)
        self._file = code.co_filename if code is not None else _NO_FILE
        self._function = function
        self._label = getattr(function, "__name__", type(function).__name__)
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # a function of C: it gets all entries
            parameters = [inspect.Parameter("_", inspect.Parameter.VAR_KEYWORD)]
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._required = [p.name for p in parameters if p.kind in by_name and p.default is _EMPTY]
        self._names = {p.name for p in parameters if p.kind in by_name}
        self._takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)

    def __reduce__(self) -> Any:
        return _restored, (type(self), self._function, self._line, self._file)

    def __repr__(self) -> str:
        return f"BatchTransform({self._label})"

    def __call__(self, samples: Any) -> Any:
        """The batch of a list of samples."""
        is_list = isinstance(samples, list)
        if is_list and not samples:
            raise ValueError(f"{self._subject}: the list of samples is empty")
        try:
            if is_list:
                return self._run(self._columns(samples), _as_argument, _stacked)
            return self._run(samples, lambda value: value, lambda value: value)
        except Exception as e:
            self._name_line(e, user_line())
            if is_list and isinstance(e, SampleError) and 0 <= e.index < len(samples):
                if facts := _facts(samples[e.index]):
                    e.add_note(f"{self._subject}: sample {e.index} of the batch has {facts}")
            raise

    def _name_line(self, e: Exception, caller: str):
        """Names the user's lines in an error: that of `BatchTransform` in place of the caller's, which is Grain's own,
        and the file of the function if it was sent from another process.
        """
        if e.args and isinstance(e.args[0], str):
            text = e.args[0].replace(f"(called at {caller})", f"(called at {self._line})")
            e.args = (text.replace(f"(called at {_NO_FILE}:", f"(called at {self._file}:"), *e.args[1:])
        if isinstance(e, OperatorError):
            e.where = self._line if e.where == caller else e.where.replace(_NO_FILE, self._file)

    def map(self, element: Any) -> Any:
        """The batch of an element: a list of samples, or a batch that Grain has stacked."""
        return self(element)

    @property
    def _subject(self) -> str:
        return f"{_NAME} of {self._label}"

    def _columns(self, samples: list[Any]) -> Any:
        """The structure of the samples, with a `_Column` for each leaf. Raises ValueError if structures differ."""
        structures = [*map(jax.tree.structure, samples)]
        for i, structure in enumerate(structures):
            if structure != structures[0]:
                raise ValueError(  # Grain adds advice to this class, for samples that a filter has left out
                    f"{self._subject}: all samples of a batch must have one structure, but sample 0 has {structures[0]}, "
                    f"sample {i} {structure}"
                )
        return jax.tree.map(lambda *values: _Column(values), *samples)

    def _run(self, batch: Any, argument: Callable[[Any], Any], stacked: Callable[[Any], Any]) -> Any:
        """Calls the function.

        Args:
          batch: a dictionary of columns, a tuple of them, or one column.
          argument: makes the function's argument of a column.
          stacked: makes an array of a column that the function does not get.
        """
        other_entries: dict[Any, Any] = {}
        if isinstance(batch, Mapping):
            if missing := [n for n in self._required if n not in batch]:
                advice = "; SampleKey() before the batch gives each sample a key" if missing == ["key"] else ""
                raise TypeError(
                    f"{self._subject}: the samples have no entry {missing[0]!r}, which is a parameter of the function; they have "
                    f"{quoted(list(batch))}{advice}"
                )
            names = [n for n in batch if n in self._names or (self._takes_all and isinstance(n, str))]
            arguments = {n: jax.tree.map(argument, batch[n]) for n in names}
            other_entries = {n: self._other_entry(n, x, stacked) for n, x in batch.items() if n not in arguments}
            result = self._function(**arguments)
        else:
            arguments = jax.tree.map(argument, batch if isinstance(batch, tuple) else (batch,))
            result = self._function(*arguments)
        if other_entries and not isinstance(result, Mapping):
            raise TypeError(
                f"{self._subject}: the function must return a dictionary of entries, as the samples have others, "
                f"{quoted(list(other_entries))}: got {type(result).__name__}"
            )
        # A list that the function returns as it got it is a column, too.
        lists = {id(x) for x in jax.tree.leaves(arguments, is_leaf=_is_list) if isinstance(x, list)}
        result = jax.tree_util.tree_map_with_path(
            self._array, result, is_leaf=lambda x: isinstance(x, Batch) or (isinstance(x, list) and id(x) in lists)
        )
        return {**other_entries, **result} if other_entries else result

    def _other_entry(self, name: Any, column: Any, stacked: Callable[[Any], Any]) -> Any:
        """An entry that the function does not name."""
        try:
            return jax.tree.map(stacked, column)
        except ValueError as e:
            raise ValueError(
                f"{self._subject}: the entry {name!r}, which is no parameter of the function, can't be stacked: {e}"
            ) from e

    def _array(self, path: Any, x: Any) -> Any:
        """A leaf of the function's result as a NumPy array; `path`: where it is."""
        if isinstance(x, (Batch, list)):
            try:
                return x.numpy() if isinstance(x, Batch) else np.stack(x)
            except ValueError:
                shapes = list(dict.fromkeys(np.shape(sample) for sample in x))
                raise ValueError(
                    f"{self._subject}: the samples of the result{jax.tree_util.keystr(path)} differ in shape, {quoted(shapes)}, so they "
                    "can't become one array: resize or pad them, or return list(batch)"
                ) from None
        return np.asarray(x) if isinstance(x, (np.ndarray, np.generic, jax.Array)) else x


def _restored(cls: type[BatchTransform], function: Callable[..., Any], line: str, file: str) -> BatchTransform:
    """The transform in another process. `line`: where it was made; `file`: of the function."""
    prepare_worker()
    result = cls(function)
    result._line, result._file = line, file
    return result


class _Column:
    """The values of one leaf of all samples."""

    def __init__(self, values: Sequence[Any]):
        self.values = values


def _is_list(x: Any) -> bool:
    return isinstance(x, list)


def _as_argument(column: _Column) -> Any:
    """A column as an argument: numbers and keys are an array, others a list."""
    values = column.values
    if all(isinstance(x, (bool, int, float, np.generic)) or (isinstance(x, np.ndarray) and not x.ndim) for x in values):
        return np.asarray(values)
    if all(isinstance(x, np.ndarray) and x.dtype == np.uint32 and x.shape == _KEY_SHAPE for x in values):
        return np.stack(values)
    return list(values)


def _stacked(column: _Column) -> np.ndarray:
    """A column as Grain's own batches have it."""
    return np.stack(column.values)


def _facts(sample: Any) -> str:
    """The texts and numbers in a sample, which may tell where it comes from."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(sample)
    facts = [
        f"{jax.tree_util.keystr(path)} = {quoted(np.asarray(x).item() if not isinstance(x, str) else x)}"
        for path, x in leaves
        if isinstance(x, (str, bool, int, float, np.generic)) or (isinstance(x, np.ndarray) and x.size == 1)
    ]
    return ", ".join(facts)
