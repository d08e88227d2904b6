"""Runs pipelines and measures images per second, CPU time, and the parts of a batch's time."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import glob
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import jax

from .._batch.meter import Measured
from .._pipeline.pipeline import Pipeline
from ._definitions import Make, UsageError

_WARM_UP = 3  # batches, which determine types, compile, and fill the queue


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of running one pipeline.

    Attributes:
      images_per_second: that a user gets; cpu: CPU seconds per image; cores: busy cores on average.
      waited: fraction of the time in which the user waited for batches.
      longest: time of the longest batch, divided by the median.
      rows: the meter's rows; batches: the number of batches in them.
      bad: files that could not be decoded.
    """

    num_threads: int
    batch_size: int
    images_per_second: float
    cpu: float
    cores: float
    waited: float
    longest: float
    rows: Sequence[Measured]
    batches: int
    bad: Sequence[str]


def measure(
    make: Make, num_threads: int, batch_size: int, seconds: float, step: float, tick: Callable[[float], object]
) -> Run:
    """Takes batches for some seconds.

    Args:
      make: makes the pipeline; step: seconds of the consumer's work after each batch; tick: called with the fraction of
        time since the last call.
    """
    with _running(make, num_threads, batch_size, step) as pipeline:
        before, cpu, start = pipeline.statistics(), _cpu_time(), time.perf_counter()
        times, last = [], start
        while last - start < seconds or len(times) < 2:
            if not _take(pipeline):
                break
            if step:
                time.sleep(step)
            now = time.perf_counter()
            times.append(now - last)
            tick(min(now - last, seconds) / seconds)
            last = now
        if not times:
            raise UsageError(f"the pipeline gives too few batches of {batch_size} to be measured")
        wall, cpu = last - start, _cpu_time() - cpu
        rows, bad = _since(pipeline.statistics(), before), [b.file for b in pipeline.bad_samples()]
    waited = sum(m.seconds for m in rows if (m.stage, m.step) == ("wait", "user")) / wall
    images, typical = len(times) * batch_size, sorted(times)[len(times) // 2]
    return Run(
        num_threads,
        batch_size,
        images / wall,
        cpu / images,
        cpu / wall,
        waited,
        max(times) / typical,
        rows,
        len(times),
        bad,
    )


def operators_in_programs(make: Make, num_threads: int, batch_size: int, batches: int) -> dict[str, float]:
    """Seconds per batch of each operator inside compiled programs, from a JAX profile; empty if the profile does not
    name them.

    The time of a fused native call is divided among its operators in proportion to their times when they run
    separately.
    """
    found = _profiled(make, num_threads, batch_size, batches)
    apart = (
        _profiled(functools.partial(make, fuse=False), num_threads, batch_size, batches)
        if any(" " in name for name in found)
        else {}
    )
    seconds = collections.defaultdict[str, float](float)
    for names, together in found.items():
        each = {name: apart.get(name, 0.0) for name in names.split(" ")}
        for name, alone in each.items():
            seconds[name] += together * (alone / sum(each.values()) if sum(each.values()) else 1 / len(each))
    return dict(seconds)


def _profiled(make: Make, num_threads: int, batch_size: int, batches: int) -> dict[str, float]:
    """Seconds per batch of each call in programs, by its operators."""
    with _running(make, num_threads, batch_size) as pipeline, tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        before = pipeline.statistics()
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            for _ in range(batches):
                _take(pipeline)
        finally:
            jax.profiler.stop_trace()
        launched = _since(pipeline.statistics(), before)
        names = _instructions(pipeline)
        files = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        events = [
            e
            for f in files
            for p in jax.profiler.ProfileData.from_file(f).planes
            for line in p.lines
            for e in line.events
        ]
        seconds = collections.defaultdict[str, float](float)
        for event in events:
            if event.name in names:
                seconds[names[event.name]] += (event.duration_ns or 0) * 1e-9
    count = max((m.calls for m in launched if m.stage == "launch"), default=0)
    return {name: s / count for name, s in seconds.items()} if count else {}


def _instructions(pipeline: Pipeline) -> dict[str, str]:
    """Maps each instruction of the pipeline's programs to its operator."""
    found: dict[str, str] = {}
    for m in (m for m in pipeline.statistics() if m.stage == "launch"):
        text = pipeline.lower(int(m.step.partition(":")[0])).compile().as_text() or ""
        for name, operator in re.findall(r"%(\S+) = .*metadata=\{op_name=\"jit\(\w+\)/(?:shard_map/)?([\w. ]+)/", text):
            found[name] = operator if found.get(name, operator) == operator else f"{found[name]} | {operator}"
    return found


@contextlib.contextmanager
def _running(make: Make, num_threads: int, batch_size: int, step: float = 0.0):
    """A pipeline that has warmed up, and made batches ahead while the consumer worked."""
    pipeline = make(num_threads=num_threads, batch_size=batch_size, enable_statistics=True)
    try:
        for _ in range(_WARM_UP):
            _take(pipeline)
            time.sleep(step)
        yield pipeline
    finally:
        pipeline.close()


def _take(pipeline: Pipeline) -> bool:
    """Takes the next batch, from the next epoch if one has ended. Returns False if there is none."""
    for _ in range(2):
        try:
            pipeline.run()
            return True
        except StopIteration:
            pipeline.reset()
    return False


def _cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _since(now: Sequence[Measured], before: Sequence[Measured]) -> list[Measured]:
    """The rows measured between two times."""
    then = {(m.stage, m.step): m for m in before}
    numbers = ("seconds", "calls", "samples", "bytes")
    return [
        dataclasses.replace(m, **{n: getattr(m, n) - getattr(then[m.stage, m.step], n) for n in numbers})
        if (m.stage, m.step) in then
        else m
        for m in now
    ]


# --- where the time of a batch goes ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds per batch of an operator in a stage. `kind`: "storage", "decode", "operator" or "Python"."""

    stage: str
    operator: str
    seconds: float
    kind: str


def costs(run: Run, operators: Mapping[str, float]) -> list[Cost]:
    """How the threads that make a batch spend their time, the largest part first. `operators`: seconds per batch in
    programs.
    """
    dispatch = "dispatch" if operators else "programs"
    spent: dict[tuple[str, str], float] = collections.defaultdict(float)
    for m in run.rows:
        if m.stage in ("read", "host", "setup", "output"):
            spent[m.stage, _operator(m.step)] += m.seconds / run.batches
        elif m.stage in ("launch", "check"):
            spent["launch", dispatch] += m.seconds / run.batches
    inside = sum(operators.values())
    # The two were measured in different runs, so the operators' times are scaled down to the programs' time in this
    # run.
    scale = min(1.0, spent["launch", dispatch] / inside) if inside else 0.0
    for name, seconds in operators.items():
        spent["program", name] += seconds * scale
        spent["launch", dispatch] -= seconds * scale
    found = [
        Cost(stage, name, max(seconds, 0.0), _kind(stage, name, bool(operators)))
        for (stage, name), seconds in spent.items()
    ]
    return sorted(found, key=lambda c: -c.seconds)


def _operator(step: str) -> str:
    """The name of a node: the user's name, or the operator's."""
    return re.sub(r"^__(.+)_\d+$", r"\1", step)


def _kind(stage: str, operator: str, known: bool) -> str:
    if stage == "read":
        return "storage"
    if operator.startswith(("decoders.", "experimental.decoders.")) and stage != "setup":
        return "decode"
    if stage in ("setup", "output") or operator == "python_function" or (stage == "launch" and known):
        return "Python"
    return "operator"


@dataclasses.dataclass(frozen=True)
class Bound:
    """The limit of a pipeline: a `Cost.kind` or "consumer", the operator if it is one, and its share of the time."""

    kind: str
    operator: str
    share: float


def bound_of(run: Run, spent: Sequence[Cost]) -> Bound:
    """Finds what to make faster first."""
    if run.waited < 0.05:
        return Bound("consumer", "", 1 - run.waited)
    total = sum(c.seconds for c in spent)
    parts = collections.Counter[tuple[str, str]]()
    for c in spent:
        parts[c.kind, c.operator if c.kind == "operator" else ""] += c.seconds  # pyright: ignore[reportArgumentType]
    (kind, operator), most = max(parts.items(), key=lambda item: item[1])
    return Bound(kind, operator, most / total if total else 0.0)


def recommended(runs: Sequence[Run]) -> Run:
    """The fewest threads, and of these the smallest batch, that reach 95 % of the highest throughput."""
    most = max(r.images_per_second for r in runs)
    return min((r for r in runs if r.images_per_second >= 0.95 * most), key=lambda r: (r.num_threads, r.batch_size))


def recommended_depth(run: Run) -> int:
    """The number of batches made ahead that hides the longest batch: 2 if all take equally long, at most 8."""
    return min(max(2, round(run.longest)), 8)
