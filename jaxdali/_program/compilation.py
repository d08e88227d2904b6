"""`Compilation`: compiles programs ahead, in a thread of its own; and `stored`, which stores programs in JAX's
compilation cache.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from .._core.jax_settings import own_settings
from .._core.system import Thread, despite_interrupts, threads_named

# At exit: the time for a compilation that has begun, which can't be interrupted, see Note [Exit].
EXIT_PATIENCE = 60.0  # seconds

_config: Any = jax.config  # type checkers do not know its attributes
_log = logging.getLogger("jaxdali")
_turn = threading.Lock()  # one compilation at a time, so that cores are left for making batches
_exiting = False


class Compilation(Thread):
    """A thread that compiles programs which later batches may need, see Note [Compiled ahead]. One thread at a time
    compiles. `start` has no effect if no thread can be started.

    Attributes:
      succeeded: whether the programs are compiled.

    Args:
      compile: compiles the programs. The call may outlive the pipeline.
    """

    def __init__(self, compile: Callable[[], None]):
        super().__init__(target=self._compile_in_turn, name="jaxdali-compile", daemon=True)
        self.succeeded = False
        self._compile = compile
        # The first to acquire it decides: this thread compiles, or another one cancels. It is never released.
        self._claim = threading.Lock()

    def start(self):
        """Starts the thread, or cancels the compilation if that is not possible or the process is exiting."""
        try:
            super().start()
        except (RuntimeError, MemoryError):
            # At exit, or without memory for a thread. Each batch then compiles the programs that it needs.
            self.cancel()
        if _exiting:  # `_at_exit` may have looked for this thread already
            self.cancel()

    def _compile_in_turn(self):
        """Compiles the programs when it is this thread's turn, unless it was cancelled before."""
        with _turn:
            if not self._claim.acquire(blocking=False):  # cancelled
                return
            try:
                with own_settings(), stored():
                    self._compile()
                self.succeeded = True
            except Exception as e:  # the batch that needs the program compiles it again, and raises
                _log.debug("a program could not be compiled ahead: %s: %s", type(e).__name__, str(e))

    def cancel(self) -> bool:
        """Keeps the thread from compiling. Returns False if it has begun to."""
        return self._claim.acquire(blocking=False)

    def settle(self):
        """Cancels the compilation, or waits for it if it has begun."""
        if not self.cancel():
            self.join()  # not in a forked process, where the threads of its parent are not alive


@atexit.register
def _at_exit():
    """Cancels the compilations that have not begun, and waits for the one that has."""
    global _exiting
    _exiting = True
    deadline = time.monotonic() + EXIT_PATIENCE
    compilations = [t for t in threads_named("jaxdali-compile") if isinstance(t, Compilation)]

    def wait():
        for compilation in compilations:
            compilation.cancel()
        for compilation in compilations:
            compilation.join(max(0.0, deadline - time.monotonic()))

    despite_interrupts(wait)


def _in_child():
    """Renews the locks in a forked process, whose parent may have held them in other threads."""
    global _turn, _storing
    _turn, _storing = threading.Lock(), _Storing()


class _Storing:
    """A context in which JAX stores all programs, however short their compilation. Several threads may be in it.

    JAX has the setting for the whole process only, so programs that others compile at the same time are stored, too.
    """

    NAME = "jax_persistent_cache_min_compile_time_secs"

    def __init__(self):
        self._lock = threading.Lock()  # guards `_num_threads`, `_user_setting` and JAX's setting
        self._num_threads = 0  # in this context
        self._user_setting = 0.0

    def __enter__(self):
        with self._lock:
            self._num_threads += 1
            if self._num_threads == 1:
                self._user_setting = getattr(_config, self.NAME)
                _config.update(self.NAME, 0.0)

    def __exit__(self, *_):
        with self._lock:
            self._num_threads -= 1
            if not self._num_threads and getattr(_config, self.NAME) == 0:  # otherwise the user has set it meanwhile
                _config.update(self.NAME, self._user_setting)


_storing = _Storing()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def stored() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which JAX stores all programs that it compiles, if the user has set a cache folder."""
    return _storing if _config.jax_compilation_cache_dir else contextlib.nullcontext()
