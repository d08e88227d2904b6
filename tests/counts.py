"""Counts of a process during a test: threads it starts, programs it compiles, memory it allocates. What others do is not
counted.

A process runs many tests, and libraries have threads of their own, so events are counted by thread: those of the thread
that counts, and of the threads that began since.
"""

import collections
import contextlib
import gc
import multiprocessing
import pathlib
import threading
import time
import tracemalloc
import types
from collections.abc import Callable, Iterator

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"
# Threads of pools that the process keeps; they wait for work.
_KEPT = ("jaxdali-audio", "jaxdali-decoder", "jaxdali-pillow", "jaxdali-video")


class Threads:
    """The package's threads that began since; of these names, where names are given."""

    def __init__(self):
        self._before = {*threading.enumerate()}

    def __call__(self, *names: str) -> list[threading.Thread]:
        new = [t for t in threading.enumerate() if t not in self._before]
        return [
            t
            for t in new
            if t.name in names or (not names and t.name.startswith("jaxdali-") and not t.name.startswith(_KEPT))
        ]

    def ended(self, *names: str) -> bool:
        """Waits for their end."""
        return until(lambda: not self(*names))

    def end(self):
        """Waits for their end, also of those that end when an iterator is collected."""

        def gone() -> bool:
            if self():
                gc.collect()  # each time: what a thread is using can't be collected
            return not self()

        assert until(gone), f"threads that a test started are still there: {[t.name for t in self()]}"


def until(condition: Callable[[], object], seconds: float = 20) -> bool:
    """Waits until something is the case. Returns whether it is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def compilations() -> Iterator[collections.Counter[str]]:
    """The number of XLA programs that are compiled, by the names of the threads that compile them."""
    counts, threads = collections.Counter(), {*threading.enumerate()} - {threading.current_thread()}

    def listener(event: str, duration: float, **_):
        if event == _COMPILED and threading.current_thread() not in threads:
            counts[threading.current_thread().name] += 1

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield counts
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


@contextlib.contextmanager
def allocations() -> Iterator[types.SimpleNamespace]:
    """Bytes of Python's memory that are allocated meanwhile: `kept` at the end, and the `most` at any time."""
    memory = types.SimpleNamespace()
    tracemalloc.start()
    try:
        yield memory
        memory.kept, memory.most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def processes() -> Callable[[], list]:
    """The processes that multiprocessing has started since, and that run."""
    earlier = {*multiprocessing.active_children()}
    return lambda: [p for p in multiprocessing.active_children() if p not in earlier]


def kernel_threads() -> Callable[[], int]:
    """The number of native threads that run kernels and began since; 0 where the operating system does not tell."""
    earlier = _kernel_threads()
    return lambda: len(_kernel_threads() - earlier)


def _kernel_threads() -> set[str]:
    names = set()
    with contextlib.suppress(OSError):
        for task in pathlib.Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if (task / "comm").read_text() == "jaxdali-kernels\n":
                    names.add(task.name)
    return names
