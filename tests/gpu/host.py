"""The time that the host takes for a GPU: copies, transfers, reading files, and the stages of a pipeline.

    python tests/gpu/host.py [--dry-run]

Wall time and CPU time of each function that a batch of training passes through, in the thread that calls it; and what
the threads do, as a sampling of their stacks sees it.
"""

import collections
import concurrent.futures
import functools
import itertools
import os
import pathlib
import sys
import threading
import time

import first
import jax
import measuring
import numpy as np

from jaxdali._core import ffi
from jaxdali._core.ragged import BufferPool

DRY = first.DRY
MB = 1 << (18 if DRY else 20)


def say_time(name, run, rounds=10):
    seconds = measuring.median(run, 2 if DRY else rounds)
    print(f"| {name} | {seconds * 1e3:.3f} |", flush=True)


def copies_and_transfers():
    print("\n| 27 MB | ms |\n|---|--:|", flush=True)
    source, target = np.full(27 * MB, 7, np.uint8), np.zeros(27 * MB, np.uint8)
    say_time("copied to memory that was written before", lambda: np.copyto(target, source))
    say_time("copied to fresh memory", source.copy)
    d = first.gpu()
    say_time(
        "device_put of four at a time, all",
        lambda: jax.block_until_ready([jax.device_put(source, d) for _ in range(4)]),
    )
    parts = np.split(source, 4)
    say_time("in four parts", lambda: jax.block_until_ready([jax.device_put(p, d) for p in parts]))
    double = jax.jit(lambda x: x[:1] * 2)
    with jax.default_device(d):
        say_time("as an argument of a program: it returns", lambda: double(source))
        say_time("as an argument of a program: it is done", lambda: double(source).block_until_ready())
    page_locked = BufferPool(functools.partial(ffi.pinned_memory, d)).empty((27 * MB,), np.uint8)
    page_locked[:] = source
    for name, array in (("ordinary", source), ("page-locked", page_locked)):
        say_time(f"device_put of {name} memory returns", lambda x=array: jax.device_put(x, d))
        say_time(f"device_put of {name} memory is done", lambda x=array: jax.device_put(x, d).block_until_ready())
        say_time(
            f"device_put of {name} memory, and a program with it returns", lambda x=array: double(jax.device_put(x, d))
        )
    if not DRY:
        try:
            pinned = jax.sharding.SingleDeviceSharding(d, memory_kind="pinned_host")
            on_host = jax.device_put(source, pinned).block_until_ready()
            say_time("to pinned memory", lambda: jax.device_put(source, pinned).block_until_ready())
            on_device = jax.sharding.SingleDeviceSharding(d)
            say_time("from pinned memory to the device", lambda: jax.device_put(on_host, on_device).block_until_ready())
        except Exception as e:
            print(f"pinned: {type(e).__name__}: {str(e)[:300]}")


def reading():
    names = [str(f).encode() for f in first.files()[: first.BATCH]]
    print("\n| read 256 files | ms |\n|---|--:|", flush=True)
    data = np.zeros(64 * MB, np.uint8)

    def part(k, n):
        for i in range(k, len(names), n):
            f = os.open(names[i], os.O_RDONLY)
            os.preadv(f, [memoryview(data)[i * 200_000 : i * 200_000 + 200_000]], 0)
            os.close(f)

    for n in (1, 4, 8, 15):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            say_time(
                f"Python, {n} threads, into memory that was written before",
                lambda n=n, pool=pool: list(pool.map(part, range(n), [n] * n)),
            )


def timed(of, name, times):
    function = getattr(of, name)

    @functools.wraps(function)
    def call(*args, **options):
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return function(*args, **options)
        finally:
            times[name].append((time.perf_counter() - wall, time.thread_time() - cpu))

    setattr(of, name, call)


def sample(stop, stacks):
    this_thread = threading.get_ident()
    while not stop.wait(0.001):
        names = {t.ident: t.name for t in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident == this_thread:
                continue
            lines = []
            while frame is not None and len(lines) < 4:
                code = frame.f_code
                lines.append(f"{pathlib.Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
                frame = frame.f_back
            stacks[names.get(ident, "?"), " < ".join(lines)] += 1


def pipeline():
    from jaxdali import _cpu
    from jaxdali._batch.executor import Executor
    from jaxdali._batch.host_pass import HostPass
    from jaxdali._batch.launch import Launcher
    from jaxdali._batch.reading import BatchReader
    from jaxdali.fn._decode.headers import ImageHeaders

    times = collections.defaultdict(list)
    for owner, names in {
        BatchReader: ("read",),
        _cpu: ("file_sizes", "read_files", "parse_headers", "make_jpeg_tables", "plan_jpeg_workspace"),
        ImageHeaders: ("run",),
        Executor: ("prepare", "dispatch", "check"),
        Launcher: ("_operands", "_dispatch"),
        HostPass: (),
    }.items():
        for name in names:
            timed(owner, name, times)
    for threads in first.THREADS:
        names = first.files() * (2 if DRY else 100)
        with first.iterator(
            first.train_pipeline, first.gpu(), names, num_threads=threads, prefetch_queue_depth=3
        ) as it:
            batches = (batch for _ in itertools.count() for batch in it)  # of many epochs
            for _ in range(2 if DRY else 20):
                batch = next(batches)
            jax.block_until_ready(batch)
            times.clear()
            stop, stacks = threading.Event(), collections.Counter()
            sampler = threading.Thread(target=sample, args=(stop, stacks), daemon=True)
            rounds = 3 if DRY else 150
            for sampled in (False, True):
                if sampled:
                    sampler.start()
                begin, cpu = time.perf_counter(), time.process_time()
                for _ in range(rounds if not sampled else rounds // 3):
                    batch = next(batches)
                jax.block_until_ready(batch)
                n = rounds if not sampled else rounds // 3
                wall, cpu = (time.perf_counter() - begin) / n, (time.process_time() - cpu) / n
                print(
                    f"\n{threads} threads{', sampled' if sampled else ''}: {wall * 1e3:.2f} ms a batch, CPU {cpu * 1e3:.2f} ms"
                )
                if not sampled:
                    print("\n| function | calls a batch | ms a batch | CPU ms a batch |\n|---|--:|--:|--:|")
                    for name, calls in dict(times).items():
                        walls, cpus = zip(*calls, strict=True)
                        print(
                            f"| {name} | {len(calls) / n:.1f} | {sum(walls) / n * 1e3:.3f} | {sum(cpus) / n * 1e3:.3f} |"
                        )
            stop.set()
            sampler.join()
            total = collections.Counter()
            for (thread, _), count in stacks.items():
                total[thread] += count
            for (thread, stack), count in stacks.most_common(28):
                if count / total[thread] > 0.02:
                    print(f"{thread:18} {count / total[thread]:6.1%} {stack}")
            sys.stdout.flush()


def main():
    print(
        pathlib.Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0],
        os.cpu_count(),
        "cores",
        flush=True,
    )
    copies_and_transfers()
    reading()
    pipeline()


if __name__ == "__main__":
    main()
