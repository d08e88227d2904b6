"""For dry runs: a CPU device stands in for the GPU, and the emulated kernels for CUDA's. Other devices stay as they
are.
"""

import threading
from typing import Any

import emulated
import jax

from jaxdali._core import ffi as _ffi
from jaxdali._program import program
from jaxdali._program.sharding import Shards


def make() -> tuple[jax.Device, dict[str, str]]:
    """The device, for the rest of the process, and what to call there instead of each kernel."""
    device, targets, thread = jax.devices("cpu")[1], emulated.targets(), threading.local()
    call, kernels_on, jit = _ffi.call, _ffi.kernels_on, program._jit

    def routed(kernel: str, *args: Any, **options: Any) -> Any:
        return call(targets[kernel] if getattr(thread, "stands_in", False) else kernel, *args, **options)

    def jitted(segment: Any, form: program.ProgramForm) -> Any:
        run = jit(segment, form)

        def traced(*operands: Any) -> Any:
            thread.stands_in = True
            try:
                return run(*operands)
            finally:
                thread.stands_in = False

        return traced if device in form.shards.primaries else run

    _ffi.call, program._jit = routed, jitted
    _ffi.kernels_on = lambda d: frozenset(targets) if d == device else kernels_on(d)
    Shards.accelerator = property(lambda self: self.primaries[0] == device)  # pyright: ignore[reportAttributeAccessIssue]
    return device, targets
