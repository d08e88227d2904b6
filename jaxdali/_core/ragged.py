"""The ragged batch: samples of different shapes in one flat, packed buffer.

Samples start at multiples of `ALIGNMENT` *elements*, so the layout of a batch depends on its shapes only. Two ragged
values of equal shapes have equal offsets for all dtypes, and a pointwise operation on them is a pointwise operation on
the flat buffers. (For every dtype the alignment is at least 64 bytes.)
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import _cpu
from .._cpu import ALIGNMENT as ALIGNMENT


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ragged:
    """A ragged batch inside a program (arrays), of one shard.

    Attributes:
      data: ``[capacity]``, the samples one after another.
      offsets: ``i32[B]``, first element of each sample in units of `ALIGNMENT` elements.
      shapes: ``i32[B, ndim]``.
    """

    data: Any
    offsets: Any
    shapes: Any

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """Dimensions of one sample."""
        return self.shapes.shape[1]


@dataclasses.dataclass(frozen=True)
class Packed:
    """A ragged batch on the host, all local shards at once: shard ``s`` is row ``s`` of `data`.

    Attributes:
      data: ``[S, capacity]``.
      offsets: ``i32[S*B]``, first element of each sample within the shard's row, in units of `ALIGNMENT` elements.
      shapes: ``i64[S*B, ndim]``.
    """

    data: np.ndarray
    offsets: np.ndarray
    shapes: np.ndarray

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of all samples, without the unused parts of the buffers."""
        return int(self.shapes.prod(axis=1).sum()) * self.data.itemsize

    @property
    def used(self) -> int:
        """The number of elements that the fullest row uses, from the beginning of the row."""
        return _cpu.packed_end(self.offsets, self.shapes)

    @property
    def starts(self) -> np.ndarray:
        """``i64[S*B]``, the first element of each sample in `data` as one vector."""
        rows, capacity = self.data.shape
        starts = self.offsets * np.int64(ALIGNMENT)
        return (
            starts if rows == 1 else starts + np.repeat(np.arange(rows, dtype=np.int64) * capacity, len(self) // rows)
        )

    def __getitem__(self, i: int) -> np.ndarray:
        """Sample ``i`` as a view."""
        row = i // (len(self.shapes) // self.data.shape[0])  # each shard has equally many samples
        start = int(self.offsets[i]) * ALIGNMENT
        shape = tuple(self.shapes[i].tolist())
        size = 1
        for n in shape:
            size *= n
        return self.data[row, start : start + size].reshape(shape)

    def stacked(self) -> np.ndarray | None:
        """All samples as a view ``[N, ...]``; None if they differ in shape, or do not follow each other."""
        if len(self.data) > 1 or not len(self) or (self.shapes != self.shapes[0]).any():
            return None
        shape = self.shapes[0].tolist()
        blocks = -(-math.prod(shape) // ALIGNMENT)  # of a sample
        used = len(self) * blocks * ALIGNMENT
        if used > self.data.shape[1] or not np.array_equal(self.offsets, np.arange(len(self)) * blocks):
            return None
        return self.data[0, :used].reshape(len(self), -1)[:, : math.prod(shape)].reshape(len(self), *shape)


class HostSamples(Sequence[np.ndarray]):
    """Some samples of a ragged batch on the host, as views that are made when they are read.

    Args:
      data: the batch.
      indices: the numbers of the samples.
    """

    def __init__(self, data: Packed, indices: Sequence[int]):
        self._data = data
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, i: Any) -> Any:
        return self._data[self._indices[i]]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        return [tuple(s) for s in self._data.shapes[list(self._indices)].tolist()]


def is_on_accelerator(array: Any) -> bool:
    """Whether a batch is a `jax.Array` on a device other than the CPU."""
    return isinstance(array, jax.Array) and next(iter(array.devices())).platform != "cpu"


class _ArrayPart:
    """A part of an array, in the form that `jax.dlpack.from_dlpack` takes."""

    def __init__(self, data: Any, start: int, shape: tuple[int, ...]):
        self._data, self._start, self._shape = data, start, shape

    def __dlpack__(self, **_: Any) -> Any:
        return _cpu.sample_of(self._data, self._start, self._shape)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()


class DeviceSamples(Sequence[jax.Array]):
    """The samples of a ragged batch in one array on a device.

    A sample is copied on demand, directly from the array's memory. A program would have to be compiled for each shape.

    Args:
      data: ``[capacity]``.
      offsets, shapes: as in `Packed`, for one shard.

    Attributes:
      starts: the first element of each sample.
      shapes: the shape of each sample.
    """

    def __init__(self, data: jax.Array, offsets: np.ndarray, shapes: np.ndarray):
        self.data = data
        self.starts: list[int] = (offsets.astype(np.int64) * ALIGNMENT).tolist()
        self.shapes: list[tuple[int, ...]] = [tuple(s) for s in shapes.tolist()]

    @property
    def nbytes(self) -> int:
        return sum(map(math.prod, self.shapes)) * self.data.dtype.itemsize

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, i: Any) -> Any:
        # A sample gets memory of its own, so that users may donate it. DLPack can't copy on a GPU, so the copy goes to
        # the host and back.
        (device,) = self.data.devices()
        with jax.enable_x64(True):
            return self.view(i) if device.platform == "tpu" else jax.device_put(np.array(self.view(i)), device)

    def view(self, i: int) -> jax.Array:
        """A sample without a copy, in the array's memory; on a TPU a copy."""
        return self._part(self.starts[i], self.shapes[i])

    def _part(self, start: int, shape: tuple[int, ...]) -> jax.Array:
        """The elements from `start` on, as an array of a shape."""
        (device,) = self.data.devices()
        with jax.enable_x64(True):  # otherwise JAX narrows 64-bit types
            if not math.prod(shape):
                return jax.device_put(np.zeros(shape, self.data.dtype), device)
            if device.platform == "tpu":  # TPUs have no DLPack
                return jax.lax.dynamic_slice(self.data, (start,), (math.prod(shape),)).reshape(shape)
            # DLPack hands over the address. Its reader would not wait for the program that writes the memory.
            return jax.dlpack.from_dlpack(_ArrayPart(self.data.block_until_ready(), start, shape), device=device)

    def of(self, samples: Sequence[int]) -> DeviceSamples:
        """Some of the samples."""
        selected = copy.copy(self)
        selected.starts, selected.shapes = [self.starts[i] for i in samples], [self.shapes[i] for i in samples]
        return selected

    def to_host(self) -> list[np.ndarray]:
        """All samples, as views of one copy of the memory that they occupy."""
        ends = [start + math.prod(shape) for start, shape in zip(self.starts, self.shapes)]
        # Rounded, because a TPU cuts the part out by a program, which is compiled for each size.
        used = min(rounded_up(max(ends, default=0)), len(self.data))
        flat = np.asarray(self._part(0, (used,)))
        return [flat[a:b].reshape(shape) for a, b, shape in zip(self.starts, ends, self.shapes)]


_MAX_BLOCKS = np.iinfo(np.int32).max  # offsets are i32, in blocks of `ALIGNMENT` elements


def plan_offsets(shapes: np.ndarray, num_shards: int) -> tuple[np.ndarray, int]:
    """(offsets of packed samples, number of elements that the fullest shard needs).

    The offsets, ``i32[S*B]``, are in units of `ALIGNMENT` elements.
    """
    offsets = np.empty(len(shapes), np.int32)
    num_blocks = _cpu.plan_offsets(np.ascontiguousarray(shapes, np.int64), num_shards, offsets)
    if num_blocks > _MAX_BLOCKS:
        i = max(range(len(shapes)), key=lambda i: math.prod(shapes[i].tolist()))
        raise ValueError(
            f"a batch of {num_blocks * ALIGNMENT} elements in one shard is more than a ragged batch can address; "
            f"the largest is sample {i}, of shape {tuple(shapes[i].tolist())}"
        )
    return offsets, num_blocks * ALIGNMENT


# Constants of `Capacities`, which explains them.
ROOM, MAX_ROOM = 1.9, 5.0  # times the largest need: of a later set, and at most of the first set of a roomy program
LEAST_ROOMY = 1 << 25  # elements of each buffer in the first set of a roomy program
WASTE, PATIENCE = 4, 16  # a smaller set is made after PATIENCE batches in a row that need less than 1 / WASTE of theirs


def rounded_up(n: int) -> int:
    """`n` elements, rounded up by at most an eighth.

    There are eight sizes for each power of two, so that few programs are compiled.
    """
    # An eighth of the largest power of two below n.
    step = max(ALIGNMENT, 1 << max(n - 1, 1).bit_length() >> 4)
    return -(-n // step) * step


SIXTHS = 6  # `Sizes.sixths` of whole buffers


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of buffers that a program is compiled for, see Note [Shared capacities].

    Attributes:
      capacities: elements of each buffer, one of the sets of a `Capacities`.
      sixths: the part of each buffer that is transferred to an accelerator, in sixths.
    """

    capacities: Mapping[Any, int]
    sixths: int = SIXTHS

    @staticmethod
    def least(capacities: Mapping[Any, int], needs: Mapping[Any, int]) -> Sizes:
        """The sizes with the smallest number of sixths, at least one, that holds a batch.

        Args:
          capacities: elements of each buffer.
          needs: elements that the batch needs of each buffer that an accelerator gets; empty: whole buffers are used.
        """
        return Sizes(
            capacities, max([1, *(-(-SIXTHS * n // capacities[k]) for k, n in needs.items())]) if needs else SIXTHS
        )

    def cut(self, keys: Iterable[Any]) -> dict[Any, int]:
        """The number of elements that an accelerator gets of some of the buffers, rounded up to `ALIGNMENT`."""
        return {k: -(-self.capacities[k] * self.sixths // (SIXTHS * ALIGNMENT)) * ALIGNMENT for k in keys}


def roomy_size(elements: int) -> int:
    """The number of elements of the buffer that a roomy program has for a batch of `elements`.

    A batch in a buffer of this size is read in place by the program.
    """
    return max(int(MAX_ROOM * elements), LEAST_ROOMY) + ALIGNMENT


# Note [Shared capacities]
# A compiled program has fixed buffer sizes, but each batch of photos needs other sizes. If each buffer grew separately,
# every combination of sizes would need a program: 243 programs for five buffers of three sizes. So the buffers of all
# programs of a phase grow together, as one set of capacities. Sets are kept by computation (`capacities_for`), not by
# pipeline: a second iterator starts with the sets of the first and compiles nothing. Unused parts of buffers cost no
# time, because kernels depend on shapes, not on capacities.
#
# An accelerator's transfers do depend on sizes, and its memory is scarce. So what it gets, and its working memory, are
# a part of the capacities, the same number of sixths for all of them (`Sizes`), so a set of capacities has at most six
# programs. If each size was rounded up by itself, a thousand batches of eight photos would need two hundred.
class Capacities:
    """Sizes of the ragged buffers of one program, in elements.

    A new set of sizes is made when a batch fits none of the existing ones: all sizes together, each a multiple of its
    largest need so far. So few programs are compiled. Sums over many samples vary little, so the first set has room for
    1 + 3 / sqrt(samples) times the need (four standard deviations, if a sample's size varies by three quarters of its
    mean), later ones have room for `ROOM` times. Each batch gets the smallest set that it fits, so that one huge sample
    costs the other batches nothing. If batches get four times what they need, as after a huge sample in the very first
    batch, a smaller set is made after `PATIENCE` of them.

    The next larger set is made before it is needed (`ahead`), see Note [Compiled ahead].

    Args:
      samples: number of samples in a batch of one shard.
      roomy: whether unused parts of buffers cost neither time nor memory, because no page of them is touched. The first
        set then has so much room that batches do not exceed it before the next one is compiled: 1 + 12 / sqrt(samples)
        times the need, and at least `LEAST_ROOMY` elements, because the few samples of a small batch may have a
        twentieth of what a later one has.
    """

    def __init__(self, samples: int, roomy: bool = False):
        # The sizes of the next new set, in units of the largest needs. After the first set it is `ROOM`.
        self._room = min(1 + 12 / math.sqrt(samples), MAX_ROOM) if roomy else min(1 + 3 / math.sqrt(samples), ROOM)
        # In elements: the smallest size of a buffer in a new set, and the largest need of each buffer so far.
        self._least = LEAST_ROOMY if roomy else 0
        self._largest: dict[Any, int] = {}
        self._sets: list[dict[Any, int]] = []  # in increasing order
        self._current: dict[Any, int] = {}  # the set of the last batch
        self._preferred: dict[Any, int] = {}  # the smallest set for the last batch, maybe not compiled yet
        # Needs of the last batches, as long as they are far smaller than the sets: less than 1 / `WASTE`.
        self._small_needs: list[Mapping[Any, int]] = []
        self._lock = threading.Lock()  # guards changes; a set that was made never changes

    def get(self, key: Any) -> int:
        """The capacity of a buffer for the last batch; 0 before the first batch."""
        return self._current.get(key, 0)

    def fit(self, needs: Mapping[Any, int], ready: Callable[[dict[Any, int]], bool] = lambda _: True) -> dict[Any, int]:
        """Capacities of all buffers for a batch.

        Args:
          needs: elements that the batch needs of each buffer.
          ready: tells whether the programs of a set are compiled. A set that is not ready is chosen only if no other
            one is large enough.
        """
        with self._lock:
            self._largest = _largest(self._largest, needs)
            # The sets that hold the batch, the smallest first. A set that lacks one of the buffers does not.
            fitting = [s for s in self._sets if all(n <= s.get(k, -1) for k, n in needs.items())] or [
                self._add(self._largest)
            ]
            # A smaller set is made if even the smallest one was far too large for `PATIENCE` batches in a row.
            self._small_needs = (
                [*self._small_needs, needs] if sum(fitting[0].values()) > WASTE * sum(needs.values()) else []
            )
            if len(self._small_needs) == PATIENCE:
                fitting.insert(0, self._add(functools.reduce(_largest, self._small_needs)))
                self._small_needs = []
            self._preferred = fitting[0]
            self._current = next(filter(ready, fitting), fitting[0])
            return dict(self._current)

    @property
    def is_preferred(self) -> bool:
        """Whether the last batch got the smallest set that it fits: the programs of that set were compiled."""
        return self._preferred is self._current or self._preferred == self._current

    def ahead(self) -> list[dict[Any, int]]:
        """The sets that later batches may need, to be compiled ahead.

        These are the set of the last batch, the next larger one, and a smaller one that was not ready. The larger one
        is made if it does not exist and a ragged batch can address it.
        """
        with self._lock:
            current = self._sets.index(self._current)
            # The limit counts blocks, and these are elements: a set that passes can certainly be addressed.
            if (
                current + 1 == len(self._sets)
                and any(self._current.values())
                and ROOM * max(self._current.values()) <= _MAX_BLOCKS
            ):
                self._add({k: max(n, self._largest.get(k, 0)) for k, n in self._current.items()})
            sets = self._sets[current : current + 2]
            return sets if self._preferred in sets else [self._preferred, *sets]

    def _add(self, largest: Mapping[Any, int]) -> dict[Any, int]:
        """Adds a set with room for the largest needs, and returns it. Its sizes are multiples of `ALIGNMENT`."""
        capacities = {
            k: max(int(self._room * n), self._least) // ALIGNMENT * ALIGNMENT + ALIGNMENT for k, n in largest.items()
        }
        self._room = ROOM
        if capacities not in self._sets:
            self._sets = sorted([*self._sets, capacities], key=lambda s: sum(s.values()))
        return capacities


def _largest(a: Mapping[Any, int], b: Mapping[Any, int]) -> dict[Any, int]:
    """The larger number for each key."""
    return {**a, **{k: max(a.get(k, 0), n) for k, n in b.items()}}


class _Memory:
    """Keeps memory of a pool as long as an array uses it, and then returns the memory's owner to the pool.

    NumPy and JAX keep this object alive through `__array_interface__`. The finalizer may run in any thread, even inside
    another call of the pool, so it takes no lock: `deque.append` is atomic.

    Args:
      owner: the object that keeps the memory allocated.
      address, shape, typestr: of the array, see NumPy's array interface.
      free: the pool's list of free memory, which gets `owner` back.
    """

    __slots__ = ("__array_interface__", "_free", "_owner")

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], typestr: str, free: collections.deque):
        self._owner = owner
        self._free = free
        self.__array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3}

    def __del__(self):
        self._free.append(self._owner)


def lend(owner: Any, address: int, shape: tuple[int, ...], dtype: np.dtype, free: collections.deque) -> np.ndarray:
    """An array that uses the memory at an address. When nothing refers to the array any more, `owner` is appended to
    `free`.

    Args:
      owner: the object that keeps the memory allocated.
      address: of the first element.
      shape, dtype: of the array.
      free: a list of memory that can be used again.
    """
    if dtype.kind != "V":
        return np.asarray(_Memory(owner, address, shape, dtype.str, free))
    # The array interface has only NumPy's own types. Others, such as bfloat16, are bytes ("|u1") there.
    return (
        np.asarray(_Memory(owner, address, (math.prod(shape) * dtype.itemsize,), "|u1", free))
        .view(dtype)
        .reshape(shape)
    )


def is_lent(x: np.ndarray) -> bool:
    """Whether an array is a buffer made by `lend`, or the beginning of one.

    Such an array has the address of its buffer. Nobody else owns that memory, so JAX can use it without a copy.
    """
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Memory) and x.flags.c_contiguous and x.ctypes.data == base.__array_interface__["data"][0]


LEAST_PINNED = 1 << 16  # bytes; XLA copies smaller arrays as fast


# Note [Pinned memory]
# A GPU copies from page-locked memory only. XLA copies other memory into its own page-locked one first, and a program
# that reads it is not dispatched until that is done: 4.3 ms for 27 MB of JPEG files on a machine with an H100. From
# page-locked memory the GPU has copied them after 1.0 ms. So on NVIDIA GPUs the buffers of operands are page-locked,
# among them those that files are read into, and `jax.device_put` gets them.
class BufferPool:
    """Recycles large host buffers, 64-byte aligned, so that JAX on the CPU uses them without a copy.

    It keeps a few buffers per size, and none of a size that was not requested among the last `FORGOTTEN` buffers.

    Args:
      pinned: allocates page-locked memory ``u8[size]`` for large buffers, see Note [Pinned memory]. It returns None if
        there is no more. None: such memory is not used.
      most_free: the largest number of free buffers of one size that it keeps; None: no limit.
    """

    FORGOTTEN, MOST_FREE = 256, 16

    def __init__(self, pinned: Callable[[int], np.ndarray | None] | None = None, *, most_free: int | None = MOST_FREE):
        self._pinned = pinned
        self._most_free = most_free
        # By size in bytes: free buffers, each as (owner, aligned address), and the number of the last request. The
        # least recently requested size is first.
        self._free: collections.OrderedDict[int, tuple[collections.deque, int]] = collections.OrderedDict()
        self._num_requests = 0
        self._lock = threading.Lock()  # guards `_free` and `_num_requests`, but not what the deques hold

    def empty(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """An uninitialised, 64-byte-aligned array; its memory returns to the pool when nothing refers to it any
        more.
        """
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        num_bytes = -(-max(size, 1) // 4096) * 4096  # rounded up, so that arrays of similar sizes share buffers
        with self._lock:
            self._num_requests += 1
            free, _ = self._free.pop(num_bytes, (collections.deque(maxlen=self._most_free), 0))
            self._free[num_bytes] = free, self._num_requests
            oldest_size, (_, last_request) = next(iter(self._free.items()))
            dropped = self._free.pop(oldest_size)[0] if self._num_requests - last_request > self.FORGOTTEN else None
        del dropped  # after the lock is released, because freeing page-locked memory may wait for the GPU
        try:
            memory = free.pop()
        except IndexError:
            allocate_pinned = self._pinned if num_bytes >= LEAST_PINNED else None
            block = allocate_pinned(num_bytes + 64) if allocate_pinned is not None else None
            if allocate_pinned is not None and block is None:
                self._pinned = None  # there is no more page-locked memory
            if block is None:
                block = np.empty(num_bytes + 64, np.uint8)
            memory = block, -(-block.ctypes.data // 64) * 64
        _, address = memory
        return lend(memory, address, shape, dtype, free)

    def free_bytes(self, n: int) -> int:
        """The bytes of the `n` largest buffers that nothing refers to."""
        with self._lock:
            sizes = [size for size, (free, _) in self._free.items() for _ in range(len(free))]
        return sum(sorted(sizes)[-n:])


def pack(samples: list[np.ndarray], num_shards: int, empty) -> Packed:
    """Copies samples of one rank and dtype into a packed batch.

    Args:
      samples: ``S*B`` arrays.
      empty: ``empty(elements, dtype)`` returns a buffer ``[S, capacity]`` with capacity at least `elements`.
    """
    shapes = np.array([s.shape for s in samples], np.int64).reshape(len(samples), samples[0].ndim)
    offsets, num_elements = plan_offsets(shapes, num_shards)
    packed = Packed(empty(num_elements, samples[0].dtype), offsets, shapes)
    for i, sample in enumerate(samples):
        packed[i][...] = sample
    return packed
