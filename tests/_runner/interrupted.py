"""``python interrupted.py FOLDER all|few``: one process for each interrupt, which is raised in one call of
`Thread.start`, `Thread.join` or `Condition.wait` in the main thread, before or after the real call.

The processes are forked before JAX runs, since imports would take most of their time. A line of JSON in the file
``FOLDER/results`` tells of each: the scenario, the call, whether it was interrupted "while it runs" or "at exit", the
status of the process, and what it wrote to standard error.
"""

import gc
import io
import itertools
import json
import mmap
import os
import pathlib
import resource
import signal
import sys
import tempfile
import threading
import time

import fsspec
import numpy as np
from PIL import Image

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator

TIMEOUT = 90  # seconds for a process
PAUSE = 0.05  # seconds between a call and its interrupt, in which other threads begin their work
BATCH = 4

files: list[str] = []
contents: list[np.ndarray] = []
referenced = []  # what a script still refers to at its end

# What a child tells its parent: the number of its calls of each kind, and the place of the interrupt.
report = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64)
PLACE = 3
PLACES = ["nowhere", "while it runs", "at exit"]


def write_images(folder):
    pixels = np.random.default_rng(0).integers(0, 255, (600, 800, 3), np.uint8)
    for i in range(2 * BATCH):
        file = io.BytesIO()
        Image.fromarray(np.roll(pixels, i)).save(file, "JPEG")
        files.append(os.path.join(folder, f"{i}.jpg"))
        pathlib.Path(files[-1]).write_bytes(file.getvalue())
        contents.append(np.frombuffer(file.getvalue(), np.uint8))
        fsspec.filesystem("memory").pipe_file(f"/interrupted/{i}.jpg", file.getvalue())


def resized(data):
    return fn.resize(fn.decoders.image(data), size=(200, 200))


def from_files():
    return resized(fn.readers.file(files=files)[0])


def from_source():
    def source(info):
        return contents[info.idx_in_epoch % len(contents)]

    return resized(fn.external_source(source, parallel=True, batch=False, dtype=types.UINT8, ndim=1))


def from_urls():
    return resized(fn.readers.file(files=[f"memory://interrupted/{i}.jpg" for i in range(len(files))])[0])


def iterator(define, threads=2, prepared=True):
    return data_iterator(define, ["x"], auto_reset=True, prepare_first_batch=prepared)(
        batch_size=BATCH, num_threads=threads, py_num_workers=2
    )


def used(it):
    for _ in range(2):
        next(it)
    return it


def collected(it):
    it.itself = it
    del it
    gc.collect()
    time.sleep(0.5)  # an interrupt in a finalizer comes again a little later


def synchronous(define):
    pipe = pipeline_def(define)(
        batch_size=BATCH, num_threads=2, py_num_workers=2, exec_pipelined=False, exec_async=False
    )
    referenced.append(pipe)
    for _ in range(2):
        pipe.run()


def again():
    """As in a notebook: after an interrupt, the iterator goes on or says that it is closed, and a new one works."""
    it = iterator(from_files, prepared=False)
    try:
        used(it)
    except KeyboardInterrupt:
        try:
            used(it)
        except RuntimeError as e:
            if "closed" not in str(e):
                os._exit(9)
        used(iterator(from_files)).close()
        raise
    referenced.append(it)


def slow(image):
    time.sleep(0.3)
    return image


def in_function():
    return fn.python_function(from_files(), function=slow)


SCENARIOS = {
    "exit in a function": lambda: referenced.append(used(iterator(in_function))),
    "exit": lambda: referenced.append(used(iterator(from_files))),
    "close": lambda: used(iterator(from_files)).close(),
    "garbage": lambda: collected(used(iterator(from_files))),
    "reader thread": lambda: referenced.append(used(iterator(from_files, threads=16))),
    "source": lambda: referenced.append(used(iterator(from_source))),
    "urls": lambda: used(iterator(from_urls)).close(),
    "synchronous source": lambda: synchronous(from_source),
    "synchronous urls": lambda: synchronous(from_urls),
    "again": again,
}
# The calls of a short run: the scenario, the function, the start of the thread's name or the number of the call, and
# when the interrupt comes.
FEW = [
    ("exit", "start", "jaxdali-produce", "after"),
    ("exit", "start", "jaxdali-check", "before"),
    ("exit", "wait", 3, "after"),
    ("exit in a function", "join", "jaxdali-produce", "after"),
    ("close", "join", "jaxdali-produce", "before"),
    ("garbage", "join", "jaxdali-produce", "after"),
    ("reader thread", "start", "jaxdali-read", "after"),
    ("synchronous source", "start", "jaxdali-source", "after"),
    ("synchronous urls", "start", "jaxdali-storage", "before"),
    ("synchronous urls", "start", "jaxdali-reader", "after"),
    ("again", "start", "jaxdali-produce", "after"),
]
KINDS = {"start": threading.Thread, "join": threading.Thread, "wait": threading.Condition}


def interrupt(kind, target, when):
    """Raises KeyboardInterrupt in one call of the main thread, and counts its calls of each kind."""
    main, nested = threading.get_ident(), []

    def replaced(number, name, real):
        def call(self, *args):
            frames = []  # the callers
            frame = sys._getframe(1)
            while frame is not None:
                frames.append(frame.f_code)
                frame = frame.f_back
            # JAX starts a timer of its own, for which the exit waits a minute. A call in a call is the same one.
            if (
                threading.get_ident() != main
                or nested == [name]
                or any(f.co_filename.endswith("xla_bridge.py") for f in frames)
            ):
                return real(self, *args)
            report[number] += 1
            is_target = name == kind and not report[PLACE]
            if is_target:
                is_target = report[number] == target if isinstance(target, int) else self.name.startswith(target)
            if is_target:
                at_exit = not threading.main_thread().is_alive() or any(f.co_name == "_shutdown" for f in frames)
                report[PLACE] = 1 + at_exit
                if when == "before":
                    raise KeyboardInterrupt
            previous, nested[:] = nested[:], [name]
            try:
                result = real(self, *args)
            finally:
                nested[:] = previous
            if is_target:
                time.sleep(PAUSE)
                raise KeyboardInterrupt
            return result

        return call

    for number, (name, owner) in enumerate(KINDS.items()):
        setattr(owner, name, replaced(number, name, getattr(owner, name)))


def child(case):
    """Runs a scenario in a child. Returns None there, before the interpreter exits; in the parent, the status of the
    child and its standard error.
    """
    scenario, kind, target, when = case
    report[:] = 0
    with tempfile.TemporaryFile() as errors:
        deadline = time.monotonic() + TIMEOUT
        pid = os.fork()
        if not pid:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(errors.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            interrupt(kind, target, when)
            SCENARIOS[scenario]()
            return None
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        errors.seek(0)
        status = "hangs" if time.monotonic() > deadline else os.waitstatus_to_exitcode(ended[1])
        return status, errors.read().decode(errors="replace")


def all_cases():
    """Each call of each scenario, before and after. A process that is not interrupted counts the calls."""
    for scenario in SCENARIOS:
        if child((scenario, None, 0, "")) is None:
            return
        numbers = report[: len(KINDS)].tolist()
        for (kind, number), when in itertools.product(zip(KINDS, numbers), ("before", "after")):
            yield from ((scenario, kind, n, when) for n in range(1, number + 1))


def main():
    folder = pathlib.Path(sys.argv[1])
    write_images(folder)
    for case in all_cases() if sys.argv[2] == "all" else FEW:
        result = child(case)
        if result is None:
            return
        status, text = result
        with (folder / "results").open("a") as lines:
            print(
                json.dumps({"case": case, "place": PLACES[report[PLACE]], "status": status, "text": text}), file=lines
            )


if __name__ == "__main__":
    main()
