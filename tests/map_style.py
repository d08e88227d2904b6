"""Map-style data sets that processes of `readers.source` load: in a module that they can import, unlike the test files."""

import atexit
import multiprocessing
import os
import signal
import time

import numpy as np


class Squares:
    """Items of different sizes, small and large; some fail."""

    def __init__(self, n=40, bad=(), wait=0.0, large=False):
        self.n, self.bad, self.wait, self.large = n, bad, wait, large

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.wait)
        if i in self.bad:
            return self._fail(i)
        return {
            "image": np.full((1 + i % 3, 6000 if self.large else 2, 3), i, np.uint8),
            "label": i * i,
            "text": f"number {i}",
        }

    def _fail(self, i):
        raise LookupError(f"nothing at {i}")


class Captioned:
    """Items with values that are no arrays; some are large enough for shared memory."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {
            "boxes": [{"box": k} for k in range(i % 3)],
            "x": np.full((80, 80), i, np.int32),
            "caption": f"caption {i}",
        }


class Ends:
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.int32(i)


class Exits:
    """Its processes note that they ended by themselves: what modules register for the end of a process runs."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if multiprocessing.parent_process() is not None:
            atexit.register((self.folder / f"{os.getpid()}").touch)
        return i


class Waits(Squares):
    def __getitem__(self, i):
        if multiprocessing.parent_process() is not None:
            time.sleep(100)
        return i


class Unloadable(Squares):
    """No process can load it."""

    def __setstate__(self, state):
        raise OSError("no such disk")


class Slow(Squares):
    """A process takes long to load it."""

    def __setstate__(self, state):
        time.sleep(100)
