"""Threads whose names profilers, debuggers and ``top -H`` show."""

from __future__ import annotations

import contextlib
import threading


def show_name():
    """Gives the operating system the calling thread's name, or its first 15 characters; Python does so from 3.14 on."""
    with contextlib.suppress(OSError):  # where there is no /proc
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as f:
            f.write(threading.current_thread().name[:15])


class Thread(threading.Thread):
    """A thread that shows its name."""

    def run(self):
        show_name()
        super().run()
