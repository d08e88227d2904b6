"""Runs pipelines and measures images per second, CPU time, and the costs of a batch."""

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

_WARM_UP_BATCHES = 3  # they determine types, compile, and fill the queue


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of running one pipeline.

    Attributes:
      images_per_second: as the user takes them.
      cpu: CPU seconds per image.
      cores: number of busy cores, on average.
      waited: fraction of the time in which the user waited for batches.
      longest: time of the longest batch, divided by the median.
      rows: the meter's rows.
      batches: number of batches in these rows.
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
    make_pipeline: Make, num_threads: int, batch_size: int, seconds: float, step: float, tick: Callable[[float], object]
) -> Run:
    """Takes batches for some seconds.

    Args:
      make_pipeline: makes the pipeline.
      num_threads: its number of threads.
      batch_size: its batch size.
      seconds: time to measure.
      step: seconds of the consumer's work after each batch.
      tick: called after each batch with its time as a fraction of `seconds`.
    """
    with _warm_pipeline(make_pipeline, num_threads, batch_size, consumer_seconds=step) as pipeline:
        rows_before, cpu, start = pipeline.statistics(), _cpu_time(), time.perf_counter()
        times, previous = [], start
        while previous - start < seconds or len(times) < 2:
            if not _take(pipeline):
                break
            if step:
                time.sleep(step)
            current = time.perf_counter()
            times.append(current - previous)
            tick(min(current - previous, seconds) / seconds)
            previous = current
        if not times:
            raise UsageError(f"the pipeline gives too few batches of {batch_size} to be measured")
        wall, cpu = previous - start, _cpu_time() - cpu
        rows, bad = _rows_since(pipeline.statistics(), rows_before), [b.file for b in pipeline.bad_samples()]
    waited = sum(m.seconds for m in rows if (m.stage, m.step) == ("wait", "user")) / wall
    num_images, median_time = len(times) * batch_size, sorted(times)[len(times) // 2]
    return Run(
        num_threads=num_threads,
        batch_size=batch_size,
        images_per_second=num_images / wall,
        cpu=cpu / num_images,
        cores=cpu / wall,
        waited=waited,
        longest=max(times) / median_time,
        rows=rows,
        batches=len(times),
        bad=bad,
    )


def operators_in_programs(make: Make, num_threads: int, batch_size: int, batches: int) -> dict[str, float]:
    """Seconds per batch of each operator inside compiled programs, from a JAX profile; empty if the profile does not
    name them.

    The time of a fused native call is divided among its operators in proportion to their times when they run
    separately.
    """
    seconds_of_calls = _profile(make, num_threads, batch_size, batches)
    unfused_seconds = (
        _profile(functools.partial(make, fuse=False), num_threads, batch_size, batches)
        if any(" " in name for name in seconds_of_calls)
        else {}
    )
    seconds = collections.defaultdict[str, float](float)
    for names, fused_seconds in seconds_of_calls.items():
        shares = {name: unfused_seconds.get(name, 0.0) for name in names.split(" ")}
        # In equal parts, if none of them was measured separately.
        for name, share in shares.items():
            seconds[name] += fused_seconds * (share / sum(shares.values()) if sum(shares.values()) else 1 / len(shares))
    return dict(seconds)


def _profile(make: Make, num_threads: int, batch_size: int, batches: int) -> dict[str, float]:
    """Seconds per batch of each native call in programs, by the names of its operators, separated by spaces.

    Args:
      make: makes the pipeline.
      batches: number of batches to take under JAX's profiler.
    """
    with _warm_pipeline(make, num_threads, batch_size) as pipeline, tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Python's calls are not needed, and would slow the pipeline down
        rows_before = pipeline.statistics()
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            for _ in range(batches):
                _take(pipeline)
        finally:
            jax.profiler.stop_trace()
        launch_rows = _rows_since(pipeline.statistics(), rows_before)
        names = _operators_by_instruction(pipeline)
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
    # The number of batches that were launched meanwhile.
    count = max((m.calls for m in launch_rows if m.stage == "launch"), default=0)
    return {name: s / count for name, s in seconds.items()} if count else {}


def _operators_by_instruction(pipeline: Pipeline) -> dict[str, str]:
    """Maps each instruction of the pipeline's programs to its operators, as named in the metadata of the HLO text."""
    operators: dict[str, str] = {}
    for m in (m for m in pipeline.statistics() if m.stage == "launch"):
        number, _, _ = m.step.partition(":")  # the step of a launch is "NUMBER: OPERATORS"
        text = pipeline.lower(int(number)).compile().as_text() or ""
        # %INSTRUCTION = ... metadata={op_name="jit(FUNCTION)/OPERATORS/...
        for instruction, name in re.findall(
            r"%(\S+) = .*metadata=\{op_name=\"jit\(\w+\)/(?:shard_map/)?([\w. ]+)/", text
        ):
            # Instructions of several programs may have one name.
            known_name = operators.get(instruction, name)
            operators[instruction] = name if known_name == name else f"{known_name} | {name}"
    return operators


@contextlib.contextmanager
def _warm_pipeline(make: Make, num_threads: int, batch_size: int, consumer_seconds: float = 0.0):
    """Makes a pipeline and takes its first batches. Closes it at the end of the context.

    Args:
      consumer_seconds: time of the consumer's work after each batch.
    """
    pipeline = make(num_threads=num_threads, batch_size=batch_size, enable_statistics=True)
    try:
        for _ in range(_WARM_UP_BATCHES):
            _take(pipeline)
            time.sleep(consumer_seconds)
        yield pipeline
    finally:
        pipeline.close()


def _take(pipeline: Pipeline) -> bool:
    """Takes the next batch, from the next epoch if one has ended. Returns False if there is none."""
    for _ in range(2):  # again after the end of an epoch
        try:
            pipeline.run()
            return True
        except StopIteration:
            pipeline.reset()
    return False


def _cpu_time() -> float:
    """CPU seconds of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _rows_since(rows: Sequence[Measured], earlier_rows: Sequence[Measured]) -> list[Measured]:
    """The difference of two measurements: the rows now, without what was measured in the earlier rows."""
    earlier = {(m.stage, m.step): m for m in earlier_rows}
    numbers = ("seconds", "calls", "samples", "bytes")
    return [
        dataclasses.replace(
            m, **{field: getattr(m, field) - getattr(earlier[m.stage, m.step], field) for field in numbers}
        )
        if (m.stage, m.step) in earlier
        else m
        for m in rows
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
    """The costs of a batch in the threads that make it, the largest first.

    Args:
      run: the measurement.
      operators: seconds per batch of operators in programs; empty: unknown, so a program is one cost.
    """
    dispatch = "dispatch" if operators else "programs"
    seconds_by_key: dict[tuple[str, str], float] = collections.defaultdict(float)
    for m in run.rows:
        if m.stage in ("read", "host", "setup", "output"):
            seconds_by_key[m.stage, _operator_name(m.step)] += m.seconds / run.batches
        elif m.stage in ("launch", "check"):
            seconds_by_key["launch", dispatch] += m.seconds / run.batches
    program_seconds = sum(operators.values())
    # The two were measured in different runs, so the operators' times are scaled down to the programs' time in this
    # run.
    scale = min(1.0, seconds_by_key["launch", dispatch] / program_seconds) if program_seconds else 0.0
    for name, seconds in operators.items():
        seconds_by_key["program", name] += seconds * scale
        seconds_by_key["launch", dispatch] -= seconds * scale
    unsorted = [
        Cost(stage, name, max(seconds, 0.0), _kind_of_cost(stage, name, bool(operators)))
        for (stage, name), seconds in seconds_by_key.items()
    ]
    return sorted(unsorted, key=lambda c: -c.seconds)


def _operator_name(step: str) -> str:
    """The operator's name from the automatic name of a node, ``__NAME_NUMBER``; a user's name does not change."""
    return re.sub(r"^__(.+)_\d+$", r"\1", step)


def _kind_of_cost(stage: str, operator: str, has_operators: bool) -> str:
    """The kind of a cost. If operators in programs are known, the rest of the stage "launch" is dispatch by Python."""
    if stage == "read":
        return "storage"
    if operator.startswith(("decoders.", "experimental.decoders.")) and stage != "setup":
        return "decode"
    if stage in ("setup", "output") or operator == "python_function" or (stage == "launch" and has_operators):
        return "Python"
    return "operator"


@dataclasses.dataclass(frozen=True)
class Bound:
    """The limit of a pipeline: a `Cost.kind` or "consumer", the operator if it is one, and its share of the time."""

    kind: str
    operator: str
    share: float


def bound_of(run: Run, costs: Sequence[Cost]) -> Bound:
    """Finds the limit of a pipeline. A user who waits less than 5 % of the time is the limit."""
    if run.waited < 0.05:
        return Bound("consumer", operator="", share=1 - run.waited)
    total = sum(cost.seconds for cost in costs)
    seconds_by_part = collections.Counter[tuple[str, str]]()
    for cost in costs:
        seconds_by_part[cost.kind, cost.operator if cost.kind == "operator" else ""] += cost.seconds  # pyright: ignore[reportArgumentType]
    (kind, operator), largest = max(seconds_by_part.items(), key=lambda item: item[1])
    return Bound(kind, operator, largest / total if total else 0.0)


def recommended(runs: Sequence[Run]) -> Run:
    """The run with the fewest threads, and of these the smallest batch, that reaches 95 % of the highest throughput."""
    highest = max(r.images_per_second for r in runs)
    return min((r for r in runs if r.images_per_second >= 0.95 * highest), key=lambda r: (r.num_threads, r.batch_size))


def recommended_depth(run: Run) -> int:
    """The number of batches made ahead that hides the longest batch: 2 if all take equally long, at most 8."""
    return min(max(2, round(run.longest)), 8)
