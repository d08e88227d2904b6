"""Devices, times and printing, which the benchmarks on a GPU share.

With ``--dry-run`` they run on the CPU, on small batches and with the emulated kernels where these are built: it shows
that the scripts work, and its figures say nothing.
"""

import argparse
import collections
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

REPOSITORY = pathlib.Path(__file__).parents[2]
sys.path += [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "benchmarks")]  # emulated.py, photos.py


import emulated  # noqa: E402

from jaxdali._core import ffi as _ffi  # noqa: E402


def arguments(doc: str | None, **more: Any) -> argparse.Namespace:
    """The command line: --dry-run and an option with a default for each keyword."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, small")
    for name, default in more.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    return parser.parse_args()


def device(dry_run: bool) -> jax.Device:
    """The first GPU, or the CPU in a dry run."""
    return jax.devices("cpu" if dry_run else "cuda")[0]


def kernel(name: str, dry_run: bool) -> str:
    """The FFI target to call for a kernel: CUDA's, or in a dry run the emulated one, or the CPU's own."""
    if not dry_run:
        return name
    try:
        return emulated.targets()[name]
    except ModuleNotFoundError:
        print("Without the emulated kernels: built without JAXDALI_EMULATED\n")
        return name


def kernels(dry_run: bool) -> frozenset[str]:
    """The CUDA kernels; in a dry run those of the emulation, if it is built."""
    if not dry_run:
        return _ffi.CUDA_KERNELS
    try:
        return frozenset(emulated.targets())
    except ModuleNotFoundError:
        return frozenset()


def interleaved(contenders: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; they take turns, and the first one changes, so that what else happens
    hits all alike.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for name in names:  # compiles, allocates
        contenders[name]()
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            begin = time.perf_counter()
            contenders[name]()
            times[name].append(time.perf_counter() - begin)
    return times


def median(f: Callable[[], Any], rounds: int = 20) -> float:
    """Seconds of one call that returns when it is done."""
    return statistics.median(interleaved({"": f}, rounds)[""])


def copy_bandwidth(dry_run: bool) -> float:
    """Bytes per second, read and written, of an elementwise program over 1 GB on the default device."""
    x = jax.numpy.zeros(1 << (18 if dry_run else 28), jax.numpy.uint32)  # XLA's program for bytes reaches half of it
    flip = jax.jit(lambda x: ~x)

    def several():
        y = x
        for _ in range(8):
            y = flip(y)
        y.block_until_ready()

    return 2 * 8 * x.nbytes / median(several, 5)


def head(columns: Sequence[str]) -> None:
    """Prints the head of a table in Markdown; all columns but the first are aligned to the right."""
    print(f"\n| {' | '.join(columns)} |\n|---|" + "--:|" * (len(columns) - 1), flush=True)


def row(cells: Sequence[str]) -> None:
    """Prints a row of a table at once."""
    print(f"| {' | '.join(cells)} |", flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    head(columns)
    for cells in rows:
        row(cells)
    print(flush=True)


def kernel_times(f: Callable[[], Any], calls: int = 5) -> list[tuple[str, float]]:
    """Name and milliseconds per call of each kernel that a function runs on a GPU, in the order of their first start."""
    durations: dict[str, list[float]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(calls):
                f()
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            profile = jax.profiler.ProfileData.from_file(str(path))
            events = [
                event
                for plane in profile.planes
                if "GPU" in plane.name
                for line in plane.lines
                if line.name and line.name.startswith("Stream")
                for event in line.events
            ]
            for event in sorted(events, key=lambda e: e.start_ns):
                durations[event.name].append(event.duration_ns / 1e6)
    return [(name, sum(times) / calls) for name, times in durations.items()]
