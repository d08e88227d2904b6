"""Devices, and DALI's contexts of evaluation."""

from __future__ import annotations

import enum
import functools
import threading
from typing import Any, ClassVar

import jax
import numpy as np

from ..._core.kinds import device_named
from ...dynamic import get_num_threads, set_num_threads
from ._checkpoint import Checkpoint

_local = threading.local()


class Device:
    """A device by DALI's names: "cpu", "gpu" or "gpu:1". "gpu", or "tpu" or "cuda", is the accelerator that JAX has, or
    JAX's CPU device.

    Args:
      name: the kind, with a number behind a colon.
      device_id: the number, where the name has none; None for the CPU.

    Attributes:
      device_type: "cpu" or "gpu".
      device_id: the index in ``jax.local_devices()``; None for the CPU.

    Raises:
      ValueError: there is no such device.
    """

    CPU: ClassVar[Device]

    def __init__(self, name: str, device_id: int | None = None):
        kind, _, number = str(name).partition(":")
        # "cuda" and, for `device_named`, "tpu" are other names of the accelerator.
        kind = "gpu" if kind == "cuda" else device_named(kind)
        if kind not in ("cpu", "gpu") or (number and (not number.isdigit() or device_id is not None)):
            raise ValueError(
                f'a device is "cpu", "gpu" or "gpu:0", got {name!r}{"" if device_id is None else f" and {device_id}"}'
            )
        if kind == "cpu" and (number or device_id is not None):
            raise ValueError(f"the CPU has no number, got {name!r}{'' if device_id is None else f' and {device_id}'}")
        self.device_type = kind
        self.device_id = None if kind == "cpu" else int(number) if number else device_id or 0
        if self.device_id is not None and not 0 <= self.device_id < len(jax.local_devices()):
            raise ValueError(f"{self}: JAX has {len(jax.local_devices())} local device(s) here, numbered from 0")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __str__(self) -> str:
        return self.device_type if self.device_id is None else f"{self.device_type}:{self.device_id}"

    def __repr__(self) -> str:
        number = "" if self.device_id is None else f", device_id={self.device_id}"
        return f"Device(device_type={self.device_type!r}{number})"

    @staticmethod
    def current() -> Device:
        """The device of the innermost block of this thread; outside of all, the accelerator that JAX has, or the CPU."""
        blocks = _local.__dict__.get("devices")
        return blocks[-1] if blocks else Device("cpu" if jax.default_backend() == "cpu" else "gpu")

    @staticmethod
    def default_device_id(device_type: str) -> int | None:
        """The number of the default device of a kind."""
        return Device(device_type).device_id

    @staticmethod
    def type_from_dlpack(dev_type: Any) -> str:
        """The kind of a device by its number in DLPack."""
        if int(dev_type) not in (1, 2):
            raise ValueError(f"devices of DLPack are 1 (CPU) and 2 (CUDA), got {dev_type}")
        return "cpu" if int(dev_type) == 1 else "gpu"

    @staticmethod
    def from_dlpack(dlpack_device: Any) -> Device:
        """The device of an array with DLPack."""
        kind, number = dlpack_device.__dlpack_device__()
        kind = Device.type_from_dlpack(kind)
        return Device(kind, None if kind == "cpu" else int(number))

    def __enter__(self) -> Device:
        """Makes this the current device. It must be the first one: functions run on the device of their inputs, and put
        files on the first device.

        Raises:
          ValueError: it is another device.
        """
        if self.device_id:
            raise ValueError(
                f"{self}: functions run on the device of their inputs, so a block can't choose it: "
                f"move the inputs with to_device({str(self)!r})"
            )
        _local.__dict__.setdefault("devices", []).append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _local.devices.pop()

    @staticmethod
    def of(device: jax.Device) -> Device:
        """The device with DALI's name for a device of JAX."""
        on_accelerator = jax.default_backend() != "cpu" and device.platform != "cpu"
        return Device("gpu", jax.local_devices().index(device)) if on_accelerator else Device("cpu")

    @property
    def jax_device(self) -> jax.Device:
        """The device as a `jax.Device`."""
        return jax.local_devices(backend="cpu")[0] if self.device_id is None else jax.local_devices()[self.device_id]


# Made without `__init__`, which would start JAX.
Device.CPU = Device.__new__(Device)
Device.CPU.device_type, Device.CPU.device_id = "cpu", None


def device(obj: Any, id: int | None = None) -> Any:
    """Converts a name or PyTorch's device into a `Device`; returns a `Device` and None unchanged.

    Args:
      id: the number of the device, if `obj` is a name without one.

    Raises:
      ValueError: there is no such device, or `id` is passed with an object that has a number.
      TypeError: `obj` is none of these.
    """
    if obj is None or isinstance(obj, str):
        return None if obj is None else Device(obj, id)
    if id is not None:
        raise ValueError(f"id is for names of devices, got {obj!r}")
    if isinstance(obj, Device):
        return obj
    if type(obj).__module__ == "torch" and type(obj).__name__ == "device":
        return Device(obj.type, obj.index)
    raise TypeError(f"a device is given by its name, got {type(obj).__name__}")


def device_of(x: Any) -> jax.Device:
    """Converts a device in any of the forms that `device` accepts, or a `jax.Device`, into a `jax.Device`."""
    return x if isinstance(x, jax.Device) else device(x).jax_device


_STREAMS = "XLA manages streams"
_ADVICE = {  # members of DALI's classes that are missing here, with the reason or the replacement
    **{f"Stream.{name}": _STREAMS for name in ("create_new", "device_id", "handle")},
    "EvalContext.cuda_stream": _STREAMS,
    "EvalContext.thread_pool": "a process has one pool of threads, see set_num_threads",
    **dict.fromkeys(
        ("EvalContext.cache_results", "EvalContext.cached_results"),
        "functions run when they are called: keep the results",
    ),
}


class _MissingMembers:
    """Base of classes that lack members of DALI's: the AttributeError says what to use instead."""

    def __getattr__(self, name: str) -> Any:
        member = f"{type(self).__name__}.{name}"
        reason = f" of DALI is not in jaxdali: {_ADVICE[member]}" if member in _ADVICE else " does not exist"
        raise AttributeError(f"{member}{reason}", name=name, obj=self)


class Stream(_MissingMembers):
    """The work that was dispatched to the local devices. JAX orders it, so a stream can only be waited for."""

    def synchronize(self) -> None:
        """Waits until the devices have computed everything that was dispatched."""
        for device in jax.local_devices():
            # A device runs programs in the order of dispatch, so this addition comes after everything else.
            jax.block_until_ready(jax.device_put(np.zeros((), np.int32), device) + 1)


def get_current_stream(device_id: int | None = None) -> Stream:
    """The stream of all devices; `device_id` has no effect."""
    return Stream()


class EvalMode(enum.Enum):
    """DALI's modes of evaluation. They have no effect: functions run when they are called, and accelerators compute
    asynchronously.
    """

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
        """The mode of the innermost block of this thread; `eager` outside of all blocks."""
        modes = _local.__dict__.get("modes")
        return modes[-1] if modes else EvalMode.eager


class EvalContext(_MissingMembers):
    """Runs functions with another number of native threads: ``with EvalContext(num_threads=8):``.

    Args:
      num_threads: of the one pool of the process; None: the number is not changed.
      device_id: only checked; `Device` and ``device=`` determine where functions run.
      cuda_stream, thread_pool: must be None: streams are XLA's, and there is one pool.

    Raises:
      ValueError: there is no such device, or `cuda_stream` or `thread_pool` is not None.
    """

    def __init__(
        self,
        *,
        num_threads: int | None = None,
        device_id: int | None = None,
        cuda_stream: Any = None,
        thread_pool: Any = None,
    ):
        if cuda_stream is not None or thread_pool is not None:
            raise ValueError(
                "EvalContext: cuda_stream and thread_pool can't be given: streams are XLA's, and there is one pool of threads"
            )
        if device_id is not None:
            Device("gpu", device_id)  # raises ValueError if there is no such device
        self._num_threads, self.device_id = num_threads, device_id
        self._outer_num_threads: list[int] = []  # before each block, as blocks of one context may be nested

    @property
    def num_threads(self) -> int:
        """The number of native threads in this context."""
        return get_num_threads() if self._num_threads is None else self._num_threads

    def __enter__(self) -> EvalContext:
        self._outer_num_threads.append(get_num_threads())
        if self._num_threads is not None:
            set_num_threads(self._num_threads)
        _context_stack().append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _context_stack().pop()
        set_num_threads(self._outer_num_threads.pop())

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of this context, see `checkpoint.current`."""
        return Checkpoint()

    def evaluate_all(self) -> None:
        """Has no effect: functions run when they are called."""

    @staticmethod
    def current() -> EvalContext:
        """The innermost context of this thread, or the default one."""
        return _context_stack()[-1] if _context_stack() else EvalContext.default()

    @staticmethod
    def default() -> EvalContext:
        """The context of this thread outside of all `with` blocks."""
        return _local.__dict__.setdefault("default", EvalContext())


def _context_stack() -> list[EvalContext]:
    return _local.__dict__.setdefault("stack", [])
