"""Devices, and DALI's contexts of evaluation."""

from __future__ import annotations

import enum
import functools
import threading
from typing import Any

import jax
import numpy as np

from ..._core.kinds import device_named
from ...dynamic import get_num_threads, set_num_threads
from ._checkpoint import Checkpoint

_local = threading.local()


class Device:
    """A device by DALI's names: "cpu", "gpu" or "gpu:1". "gpu", or "tpu", is the accelerator that JAX has, or JAX's CPU device.

    Args:
      name: the kind, with a number behind a colon.
      device_id: the number, where the name has none.

    Raises:
      ValueError: there is no such device.
    """

    def __init__(self, name: str, device_id: int | None = None):
        kind, _, number = str(name).partition(":")
        kind = device_named(kind)
        if kind not in ("cpu", "gpu") or (number and (not number.isdigit() or device_id is not None)):
            raise ValueError(f'a device is "cpu", "gpu" or "gpu:0", got {name!r}{"" if device_id is None else f" and {device_id}"}')
        self.device_type = kind
        self.device_id = int(number) if number else device_id or 0
        if kind == "gpu" and self.device_id >= len(jax.local_devices()):
            raise ValueError(f"{self}: JAX has {len(jax.local_devices())} local device(s) here, numbered from 0")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __str__(self) -> str:
        return self.device_type if self.device_type == "cpu" else f"{self.device_type}:{self.device_id}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    def __enter__(self) -> Device:
        """Functions run where their inputs are, and read files to the first device; a block for another one is a ValueError."""
        if self.device_id:
            raise ValueError(
                f"{self}: functions run on the device of their inputs, so a block can't choose it: "
                f"move the inputs with to_device({str(self)!r})"
            )
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    @staticmethod
    def of(device: jax.Device) -> Device:
        """DALI's name for a device of JAX."""
        on_accelerator = jax.default_backend() != "cpu" and device.platform != "cpu"
        return Device("gpu", jax.local_devices().index(device)) if on_accelerator else Device("cpu")

    @property
    def of_jax(self) -> jax.Device:
        """JAX's name for it."""
        return jax.local_devices(backend="cpu")[0] if self.device_type == "cpu" else jax.local_devices()[self.device_id]


def device(obj: Any, id: int | None = None) -> Device:
    """A `Device` by its name; itself if it is one."""
    return obj if isinstance(obj, Device) else Device(obj, id)


def device_of(x: Any) -> jax.Device:
    """JAX's device for one by DALI's name."""
    return x if isinstance(x, jax.Device) else device(x).of_jax


class Stream:
    """What has been dispatched to the local devices. JAX orders it, so that it can only be waited for."""

    def synchronize(self) -> None:
        """Waits until the devices have computed everything that was dispatched."""
        for device in jax.local_devices():
            jax.block_until_ready(jax.device_put(np.zeros((), np.int32), device) + 1)


def get_current_stream(device_id: int | None = None) -> Stream:
    """The stream of all devices; `device_id` has no effect."""
    return Stream()


class EvalMode(enum.Enum):
    """DALI's modes of evaluation. In all of them functions are run when they are called, and accelerators compute on their own."""

    deferred = 1
    eager = 2
    sync_cpu = 3
    sync_full = 4
    default = eager

    def __enter__(self) -> EvalMode:
        _local.__dict__.setdefault("modes", []).append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _local.modes.pop()

    @staticmethod
    def current() -> EvalMode:
        """The innermost one of this thread; `eager` outside of all."""
        modes = _local.__dict__.get("modes")
        return modes[-1] if modes else EvalMode.eager


class EvalContext:
    """Runs functions by another number of native threads: ``with EvalContext(num_threads=8):``.

    Args:
      num_threads: of the one pool of the process; None: it stays as it is.
      device_id: checked; `Device` and ``device=`` say where functions run.
      cuda_stream, thread_pool: must be None: streams are XLA's, and there is one pool.

    Raises:
      ValueError: there is no such device, or one of the last two is given.
    """

    def __init__(self, *, num_threads: int | None = None, device_id: int | None = None, cuda_stream: Any = None, thread_pool: Any = None):
        if cuda_stream is not None or thread_pool is not None:
            raise ValueError("EvalContext: cuda_stream and thread_pool can't be given: streams are XLA's, and there is one pool of threads")
        if device_id is not None:
            Device("gpu", device_id)
        self._num_threads, self.device_id = num_threads, device_id
        self._before: list[int] = []

    @property
    def num_threads(self) -> int:
        """Native threads inside of it."""
        return get_num_threads() if self._num_threads is None else self._num_threads

    def __enter__(self) -> EvalContext:
        self._before.append(get_num_threads())
        if self._num_threads is not None:
            set_num_threads(self._num_threads)
        _stack().append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _stack().pop()
        set_num_threads(self._before.pop())

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of this context, see `checkpoint.current`."""
        return Checkpoint()

    def evaluate_all(self) -> None:
        """Without effect: functions are run when they are called."""

    @staticmethod
    def current() -> EvalContext:
        """The innermost one of this thread, or the default."""
        return _stack()[-1] if _stack() else EvalContext.default()

    @staticmethod
    def default() -> EvalContext:
        """The one of this thread outside of all others."""
        return _local.__dict__.setdefault("default", EvalContext())


def _stack() -> list[EvalContext]:
    return _local.__dict__.setdefault("stack", [])
