"""Simulates a pipeline on more cores than this machine has: records a run on one core, and replays it on 1 to 256
virtual ones.

    python tests/benchmarks/cores.py [--data DIR] [--pipeline train] [--batch 256] [--launches N] [--rounds 3] [--cores
    1,2,4,...]

Recorded are CPU times: of each task of the native threads (a file, a header, an image), of what the threads of an
iterator do between these, and of XLA's threads around them. The replay knows:

* which work waits for which: a batch is read, prepared and dispatched by the producing thread, run by XLA's, checked,
  and taken by the user's, which takes batches as fast as they come. `--launches` batches are dispatched and unfinished
  (default: as an iterator does it with so many threads), while the next one is read and prepared; in all, one batch
  less than `--launches` and the depth of the queue together. Where an iterator has so many threads that it reads in a
  thread of its own, that reads one batch more;
* the native threads' queue: a thread takes the next task of the first job that has one left, jobs of the producing
  thread first; the thread that brings a job works on it, too;
* the interpreter's lock: of the threads in Python, one goes on. A free-threaded Python has no lock: all of them go on;
* cores: if more threads can run than there are cores, they share them evenly.

The serial work is what it costs on one core beside decoding: between two batches its threads sleep, and wake with cold
caches. On many cores they hardly sleep. `--serial` replays with another cost, such as that of small files, of which one
core makes 1,400 batches a second: `--data SMALL --batch 8`.

It does not know memory bandwidth, caches and clock rates that several cores share, the time that it takes to wake a
thread, and that large images are cut into strips for threads that are idle. So it says which limits the code sets, not
which the machine does.

The first table compares predictions with measured runs, for as many cores as the machine has; the runs take turns. In
the second one `efficiency` is the throughput by that of one core times the cores, and the other columns are shares of
the time: how busy the cores were, how long a thread in Python held the lock, and how long the producing thread worked
or waited for the tasks that it had brought. The last two columns are the efficiency and the limit without the lock.
With `--dali-python`, the interpreter of an environment that has DALI, a third one has the CPU time of each of DALI's
threads.
"""

import argparse
import collections
import dataclasses
import heapq
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxdali._batch.executor import MANY_THREADS, max_dispatched_on_cpu

US = 1e-3  # microseconds in one nanosecond
DEPTH = 2  # of the queue
WARM_UP = 8  # batches that are made before what is recorded or measured counts


@dataclasses.dataclass(frozen=True)
class Work:
    """Uninterrupted work of a thread: by itself, and then as a job on the pool.

    Attributes:
      alone: nanoseconds of CPU time, before the tasks; tasks: of each task, in the order in which they are handed out.
    """

    alone: float
    tasks: Sequence[float] = ()

    @property
    def all(self) -> float:
        """CPU time of everything."""
        return self.alone + sum(self.tasks)


@dataclasses.dataclass(frozen=True)
class Made:
    """The work for one batch, by stage. The producing thread prepares and dispatches; XLA's threads do not need the
    interpreter.
    """

    read: Sequence[Work]
    prepare: Sequence[Work]
    dispatch: Sequence[Work]
    xla: Sequence[Work]
    check: Sequence[Work]
    user: Sequence[Work]


STAGES = ("read", "prepare", "dispatch", "xla", "check", "user")


# --- replay
# ---------------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Replay:
    """The result of a replay: batches per nanosecond, and shares of its time."""

    speed: float
    cores: float
    interpreter: float
    producing: float

    @property
    def bound(self) -> str:
        """The stage that limits the throughput."""
        if self.cores > 0.9:
            return "cores"
        if max(self.interpreter, self.producing) < 0.9:
            return "batches wait for each other"
        return "interpreter" if self.interpreter > 0.9 else "producing thread"


class Job:
    """A job on the pool."""

    def __init__(self, tasks: Sequence[float], owner: "Thread"):
        self.waiting = collections.deque(tasks)
        self.running = 0
        self.owner = owner


class Thread:
    """A thread: the works that it has to do, in the order of batches. A thread of the pool has none."""

    def __init__(self, name: str):
        self.name = name
        self.works: collections.deque[Work] = collections.deque()
        self.job: Job | None = None  # that it works on
        self.task = False  # whether it is in a task
        self.stage, self.batch = "", -1  # that it works on
        self.idle = True


class Simulator:
    """Replays batches.

    Args:
      made: the work for each batch.
      cores: virtual cores; the pool has as many threads, that which brings a job included.
      launches: batches that may be dispatched and unfinished; None: as an iterator with so many threads.
      slots: batches that may be made and not taken; None: as that iterator.
      aside: whether a thread of its own reads one batch ahead; None: as that iterator.
      urgent: whether the producing thread's jobs are put before others in the queue.
      lock: whether the interpreter has one.
    """

    def __init__(
        self,
        made: Sequence[Made],
        cores: int,
        launches: int | None = None,
        slots: int | None = None,
        aside: bool | None = None,
        urgent: bool = True,
        lock: bool = True,
    ):
        self._aside = cores >= MANY_THREADS if aside is None else aside
        launches = max_dispatched_on_cpu(cores) if launches is None else launches
        slots = DEPTH + max(1, launches - 1) if slots is None else slots
        self._made, self._cores, self._launches, self._slots, self._urgent, self._lock = (
            made,
            cores,
            launches,
            slots,
            urgent,
            lock,
        )
        self._workers = [Thread("pool") for _ in range(cores - 1)]
        self._resting = list(self._workers)
        self._producing = Thread("produce")
        # XLA runs each program in a thread that is free.
        self._threads = [("xla", Thread("xla")) for _ in range(launches)]
        self._threads += [("prepare", self._producing), ("dispatch", self._producing)]
        self._threads += [("read", Thread("read") if self._aside else self._producing)]
        self._threads += [(name, Thread(name)) for name in ("check", "user")]
        self._queue: collections.deque[Job] = collections.deque()
        self._done = dict.fromkeys(STAGES, 0)  # batches, in order
        self._xla_done: set[int] = set()
        self._begun = dict.fromkeys(STAGES, 0)
        # Work that goes on ends at a reading of a virtual clock, which runs slower the more threads share it.
        self._clock = {"native": 0.0, "python": 0.0}
        self._ends: dict[str, list[tuple[float, int, Thread]]] = {"native": [], "python": []}
        self._count = 0
        self.taken: list[float] = []
        self.busy = dict.fromkeys(("cores", "interpreter", "producing"), 0.0)

    def run(self) -> Replay:
        """Replays all batches. The first third fills the queues, and is not counted."""
        time, first, busy_before = 0.0, max(1, len(self._made) // 3), dict(self.busy)
        self._begin_batches()
        while any(self._ends.values()):
            native, python = len(self._ends["native"]), len(self._ends["python"])
            going = min(1, python) if self._lock else python
            running = native + going
            share = min(1.0, self._cores / running)
            rate = {"native": share, "python": share * going / max(1, python)}
            passed = min((ends[0][0] - self._clock[k]) / rate[k] for k, ends in self._ends.items() if ends)
            time += passed
            self.busy["cores"] += passed * min(running, self._cores) / self._cores
            self.busy["interpreter"] += passed * min(1, python) * self._lock
            self.busy["producing"] += passed * (not self._producing.idle)
            for kind in self._clock:
                self._clock[kind] += passed * rate[kind]
            for kind, ends in self._ends.items():
                while ends and ends[0][0] <= self._clock[kind] + 1e-6:
                    self._ended(heapq.heappop(ends)[2])
            self._begin_batches()
            while len(self.taken) < self._done["user"]:
                self.taken.append(time)
                if len(self.taken) == first:
                    busy_before = dict(self.busy)
        if self._done["user"] != len(self._made):
            raise AssertionError("batches wait for each other forever")
        wall = self.taken[-1] - self.taken[first - 1]
        return Replay(
            (len(self.taken) - first) / wall, **{k: (self.busy[k] - busy_before[k]) / wall for k in self.busy}
        )

    def _go(self, thread: Thread, kind: str, cpu: float):
        self._count += 1
        heapq.heappush(self._ends[kind], (self._clock[kind] + cpu, self._count, thread))

    def _begin_batches(self):
        """Begins each batch in each thread that is free and whose batch can begin."""
        for stage, thread in self._threads:
            if thread.idle and (batch := self._begun[stage]) < len(self._made) and self._may_begin(stage, batch):
                self._begun[stage] += 1
                thread.idle, thread.stage, thread.batch = False, stage, batch
                thread.works.extend(getattr(self._made[batch], stage))
                self._next_work(thread)

    def _may_begin(self, stage: str, batch: int) -> bool:
        done = self._done
        if stage == "read" and self._aside:  # one batch ahead of the one that is prepared
            return self._begun["prepare"] >= batch
        # When the thread has dispatched the one before, and there is room.
        if stage == ("prepare" if self._aside else "read") and (
            done["dispatch"] < batch or done["user"] <= batch - self._slots
        ):
            return False
        if stage == "read":
            return True
        if stage == "dispatch" and done["check"] <= batch - self._launches:
            return False
        return done[STAGES[STAGES.index(stage) - 1]] > batch

    def _next_work(self, thread: Thread):
        if thread.works:
            self._go(thread, "native" if thread.name == "xla" else "python", thread.works[0].alone)
            return
        thread.idle = True
        if thread.name != "xla":
            self._done[thread.stage] += 1
            return
        self._xla_done.add(thread.batch)
        while self._done["xla"] in self._xla_done:  # they are checked in order
            self._done["xla"] += 1

    def _ended(self, thread: Thread):
        """A thread has ended what it did."""
        if thread.task:
            job, thread.task = thread.job, False
            assert job is not None
            job.running -= 1
            self._next_task(thread, job)
            if not job.waiting and not job.running:
                job.owner.job = None
                self._next_work(job.owner)
            return
        work = thread.works.popleft()
        if not work.tasks:
            self._next_work(thread)
            return
        job = thread.job = Job(work.tasks, thread)
        if self._urgent and thread.name in ("read", "produce"):
            self._queue.appendleft(job)
        else:
            self._queue.append(job)
        self._next_task(thread, job)
        while self._resting and job.waiting:
            self._next_task(self._resting.pop(), job)

    def _next_task(self, thread: Thread, job: Job):
        """The next task of a job; for a thread of the pool also one of another job, of those who bring jobs none: they
        wait.
        """
        if thread.name == "pool":
            while self._queue and not self._queue[0].waiting:
                self._queue.popleft()
            if not self._queue:
                self._resting.append(thread)
                return
            job = self._queue[0]
        if job.waiting:
            thread.job, thread.task = job, True
            job.running += 1
            self._go(thread, "native", job.waiting.popleft())


def replay(made: Sequence[Made], cores: int, launches: int | None = None, **options) -> Replay:
    """Replays batches, again and again, on virtual cores; for the options see `Simulator`."""
    repetitions = max(1, math.ceil(48 / len(made)))
    return Simulator([*made] * repetitions, cores, launches, **options).run()


# --- record
# ---------------------------------------------------------------------------------------------------------------------------


def cpu_of_threads() -> dict[int, int]:
    """Nanoseconds of CPU time so far of each thread of this process."""
    return {
        int(t.name): int((t / "schedstat").read_text().split()[0]) for t in pathlib.Path("/proc/self/task").iterdir()
    }


def recorded(pipeline: str, data: str, batch: int, batches: int) -> list[Made]:
    """Makes batches by the threads of an iterator, with one native thread, and returns the CPU time that each work
    took.
    """
    import jax

    from jaxdali import _cpu
    from jaxdali._batch.executor import Executor
    from jaxdali._batch.reading import BatchReader

    spans: dict[str, list[Span]] = {"read": [], "prepare": [], "dispatch": [], "check": [], "next": []}

    def noted(name: str, function):
        def note(*args, **kwargs):
            begin = time.thread_time_ns()
            result = function(*args, **kwargs)
            spans[name].append(Span(threading.get_native_id(), begin, time.thread_time_ns()))
            return result

        return note

    for cls, name in ((BatchReader, "read"), (Executor, "prepare"), (Executor, "dispatch"), (Executor, "check")):
        setattr(cls, name, noted(name, getattr(cls, name)))
    _cpu.pool_record(True)
    iterator = iterator_of(pipeline, data, batch, 1)
    take, earlier = noted("next", lambda: next(iterator)), {}
    for i in range(WARM_UP + batches):
        if i == WARM_UP:
            earlier = cpu_of_threads()
        jax.block_until_ready(take())
    later = cpu_of_threads()
    _cpu.pool_record(False)
    return arranged(_cpu.pool_recorded(), spans, {t: cpu - earlier.get(t, 0) for t, cpu in later.items()}, WARM_UP)


class Span(NamedTuple):
    """A period of a thread, by its CPU clock."""

    thread: int
    begin: int
    end: int


class Call(NamedTuple):
    """A call on the pool, and the CPU time of each task."""

    span: Span
    tasks: tuple[int, ...]


def calls_of(rows: Sequence[Sequence[int]]) -> list[Call]:
    """The calls on the pool in the order in which they began, from the rows of `_cpu.pool_recorded`. Those that a task
    made, in its own thread, are part of it and left out.
    """
    tasks = collections.defaultdict(list)
    for run, index, _, begin, _, cpu_begin, cpu_end in rows:
        if index >= 0:
            tasks[run].append((begin, cpu_end - cpu_begin))
    calls, ends = [], collections.defaultdict(int)
    for _, run, thread, _, end, cpu_begin, cpu_end in sorted((r[3], r[0], *r[2:]) for r in rows if r[1] < 0):
        if end > ends[thread]:
            ends[thread] = end
            calls.append(Call(Span(thread, cpu_begin, cpu_end), tuple(cpu for _, cpu in sorted(tasks[run]))))
    return calls


def arranged(
    rows: Sequence[Sequence[int]], spans: Mapping[str, Sequence[Span]], spent: Mapping[int, int], first: int
) -> list[Made]:
    """The work for each batch, from what was recorded since the iterator was made.

    Args:
      rows: of `_cpu.pool_recorded`.
      spans: of reading, launching, checking and taking each batch.
      spent: CPU time of each thread since the batch `first` began to be waited for.
      first: the first batch to use.
    """
    calls, ours = calls_of(rows), {span.thread for stage in spans.values() for span in stage}
    of_xla = [c for c in calls if c.span.thread not in ours]
    batches, launched = len(spans["next"]), len(spans["dispatch"])
    calls_per_launch = round(len(of_xla) / launched)
    if not calls_per_launch * batches <= len(of_xla) <= calls_per_launch * (launched + 1):
        raise SystemExit(
            f"{launched} batches were launched, and {len(of_xla)} native calls made: they can't be told apart"
        )

    def works(span: Span) -> list[Work]:
        parts, position = [], span.begin
        for call in calls:
            if call.span.thread == span.thread and span.begin <= call.span.begin < span.end:
                parts.append(Work(call.span.begin - position, call.tasks))
                position = call.span.end
        return [*parts, Work(span.end - position)]

    used = of_xla[first * calls_per_launch : batches * calls_per_launch]
    other_time = sum(cpu for t, cpu in spent.items() if t not in ours) - sum(c.span.end - c.span.begin for c in used)
    other_time = max(0.0, other_time / (batches - first))  # what XLA's threads did around the calls
    batch_works = []
    for i in range(first, batches):
        native = [Work(0.0, c.tasks) for c in of_xla[i * calls_per_launch : (i + 1) * calls_per_launch]]
        batch_works.append(
            Made(
                works(spans["read"][i]),
                works(spans["prepare"][i]),
                works(spans["dispatch"][i]),
                [Work(other_time), *native],
                *map(works, (spans["check"][i], spans["next"][i])),
            )
        )
    return batch_works


def iterator_of(pipeline: str, data: str, batch: int, threads: int):
    from bench_pipelines import definition

    from jaxdali.plugin.jax import data_iterator

    make = data_iterator(definition("jaxdali", pipeline, data), ["images", "labels"], repeat=True)
    return iter(make(batch_size=batch, num_threads=threads, seed=1, prefetch_queue_depth=DEPTH))


def measured(pipeline: str, data: str, batch: int, threads: int, batches: int) -> float:
    """Images per second."""
    import jax

    iterator = iterator_of(pipeline, data, batch, threads)
    for _ in range(WARM_UP):
        jax.block_until_ready(next(iterator))
    start = time.perf_counter()
    for _ in range(batches):
        jax.block_until_ready(next(iterator))
    return batches * batch / (time.perf_counter() - start)


def threads_of_dali(pipeline: str, data: str, batch: int, batches: int) -> list[float]:
    """CPU time of each of DALI's threads, in microseconds per image, the largest first. Two of them decode."""
    from bench_pipelines import definition
    from nvidia.dali import pipeline_def

    pipe = pipeline_def(
        definition("nvidia.dali", pipeline, data), batch_size=batch, num_threads=2, device_id=None, seed=1
    )()
    pipe.build()
    earlier: dict[int, int] = {}
    for i in range(WARM_UP + batches):
        if i == WARM_UP:
            earlier = cpu_of_threads()
        pipe.run()
    spent = (cpu - earlier.get(thread, 0) for thread, cpu in cpu_of_threads().items())
    return sorted((cpu * US / batches / batch for cpu in spent), reverse=True)


# --- report
# ---------------------------------------------------------------------------------------------------------------------------


def in_process(kind: str, cores: int, args: argparse.Namespace, data: str, python: str = sys.executable):
    """The result of `recorded`, `measured` or `threads_of_dali` in a process of its own on so many cores."""
    command = [python, __file__, "--worker", kind, str(cores), "--data", data, "--pipeline", args.pipeline]
    command += ["--batch", str(args.batch), "--images", str(args.images)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def worker(kind: str, cores: int, args: argparse.Namespace):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    batches = max(12, args.images // args.batch)
    if kind == "record":
        result = [dataclasses.asdict(work) for work in recorded(args.pipeline, args.data, args.batch, batches)]
    elif kind == "dali":
        result = threads_of_dali(args.pipeline, args.data, args.batch, batches)
    else:
        result = measured(args.pipeline, args.data, args.batch, cores, batches)
    print(json.dumps(result), flush=True)
    os._exit(0)  # what is still being made ahead is of no interest


def made_of(found: Sequence[Mapping[str, Any]]) -> list[Made]:
    """A recording, from JSON."""
    return [Made(**{name: [Work(**w) for w in works] for name, works in one.items()}) for one in found]


def with_serial(made: Sequence[Made], cost: float) -> list[Made]:
    """The same batches, with so many nanoseconds of serial work for each on average."""
    mean_cost = sum(w.alone for one in made for stage in STAGES for w in getattr(one, stage)) / len(made)
    scaled = ({n: [Work(w.alone * cost / mean_cost, w.tasks) for w in getattr(one, n)] for n in STAGES} for one in made)
    return [Made(**stages) for stages in scaled]


def of_recorded(made: Sequence[Made], batch: int) -> str:
    """A table of the CPU time per image of what was recorded."""
    n = len(made) * batch / US
    lines = ["| us of CPU an image | serial | on the pool |", "|---|--:|--:|"]
    for stage in STAGES:
        works = [w for one in made for w in getattr(one, stage)]
        lines.append(
            f"| {stage} | {sum(w.alone for w in works) / n:.2f} | {sum(sum(w.tasks) for w in works) / n:.2f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEGs; default: 1024 made for the occasion")
    parser.add_argument("--pipeline", default="train", help="one of bench_pipelines.py")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=4096, help="in each run, after a warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--launches", type=int, help="batches that may be dispatched and unfinished")
    parser.add_argument(
        "--serial", type=float, help="microseconds of serial work an image to replay with; default: as recorded"
    )
    parser.add_argument(
        "--urgent", action=argparse.BooleanOptionalAction, default=True, help="the producing thread's jobs go first"
    )
    parser.add_argument(
        "--cores", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2, 4, 8, 16, 32, 64, 128, 256]
    )
    parser.add_argument("--dali-python", help="the interpreter of an environment that has DALI")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker[0], int(args.worker[1]), args)
    with tempfile.TemporaryDirectory() as scratch:
        from photos import make_photos

        data = args.data or str(make_photos(pathlib.Path(scratch), 1024))
        real_threads = [t for t in (1, 2) if t <= len(os.sched_getaffinity(0))]
        options = {"launches": args.launches, "urgent": args.urgent}
        rounds = []
        for _ in range(args.rounds):
            recording = made_of(in_process("record", 1, args, data))
            rounds.append((recording, {t: in_process("measure", t, args, data) for t in real_threads}))
        print(
            f"load {os.getloadavg()[0]:.1f}\n\n| cores | measured, images/s | predicted | of measured |\n|--:|--:|--:|--:|"
        )
        for t in real_threads:
            pairs = [
                (speeds[t], 1e9 * args.batch * replay(recording, t, **options).speed) for recording, speeds in rounds
            ]
            real, predicted = (statistics.median(x) for x in zip(*pairs, strict=True))
            print(f"| {t} | {real:.0f} | {predicted:.0f} | {statistics.median(p / m for m, p in pairs):.3f} |")
        of_dali = in_process("dali", 2, args, data, args.dali_python) if args.dali_python else []
    recording = sorted(
        (recording for recording, _ in rounds),
        key=lambda recording: sum(w.all for x in recording for n in STAGES for w in getattr(x, n)),
    )[len(rounds) // 2]
    print(f"\n{of_recorded(recording, args.batch)}\n")
    print(
        "| cores | images/s | efficiency | cores busy | in Python | producing | bound by | free-threaded | bound by |"
    )
    print("|--:|--:|--:|--:|--:|--:|---|--:|---|")
    if args.serial is not None:
        recording = with_serial(recording, args.serial * args.batch / US)
    one = replay(recording, 1, **options).speed
    for t in args.cores:
        r = replay(recording, t, **options)
        shares = " | ".join(f"{x:.2f}" for x in (r.speed / one / t, r.cores, r.interpreter, r.producing))
        free = replay(recording, t, lock=False, **options)
        print(
            f"| {t} | {1e9 * args.batch * r.speed:.0f} | {shares} | {r.bound} | {free.speed / one / t:.2f} | {free.bound} |"
        )
    if of_dali:
        print(f"\nDALI's threads, us of CPU an image: {', '.join(f'{x:.1f}' for x in of_dali if x >= 0.1)}")


if __name__ == "__main__":
    main()
