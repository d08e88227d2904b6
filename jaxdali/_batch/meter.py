"""`Meter`: measures the stages of a pipeline, in seconds, bytes and samples of each step."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from jax.profiler import TraceAnnotation

from .._plan.segments import profile_name


@dataclasses.dataclass(frozen=True)
class Measured:
    """The cost of one step in one stage.

    Attributes:
      stage: "read" (sources), "host" (operators on the host), "setup" (the host's part of operators in programs),
        "launch" (operands, and dispatch of programs), "check" (waiting for programs), "program" (native operators
        inside programs on the CPU, see `Pipeline.statistics`), "to host" (copying a program's result to the host for a
        later step), "output" (final form of the outputs) or "wait" (step "user": the user waited for a batch; step
        "queue": all batches that fit, or all of an epoch, were made, so one had to be taken or the next epoch begun
        first; step "batch": waiting for a worker). For readers of URLs also "fetch" (requests in their own threads,
        without seconds), "retry" (requests that had failed before), "cache" (reads from the cache on disk) and
        "damaged" (damaged entries of that cache); for decoders with a cache "cache" (images from the cache, and its
        present size in bytes) and "miss" (images that were decoded to be cached).
      step: name of the operator's node, or the program.
      seconds: time of the thread that did it, waiting included.
      calls: number of runs: one per batch, more if batches were repaired; or the number of requests.
      samples: number of samples in these batches.
      bytes: size of the output of a source or operator, of a program's operands (with the results of earlier programs
        that crossed the link between host and accelerator), or of the outputs.
    """

    stage: str
    step: str
    seconds: float = 0.0
    calls: int = 0
    samples: int = 0
    bytes: int = 0

    def __add__(self, other: Measured) -> Measured:
        """The sum of two rows of one stage and step."""
        assert (self.stage, self.step) == (other.stage, other.step)
        numbers = ("seconds", "calls", "samples", "bytes")
        return Measured(self.stage, self.step, *(getattr(self, n) + getattr(other, n) for n in numbers))


class Statistics(tuple[Measured, ...]):
    """The rows, in the order of first use. The `repr` is a table."""

    __slots__ = ()

    @staticmethod
    def merged(parts: Iterable[Statistics]) -> Statistics:
        """The sum of several executors' rows, by stage and step."""
        sums: dict[tuple[str, str], Measured] = {}
        for row in (row for part in parts for row in part):
            key = row.stage, row.step
            sums[key] = sums[key] + row if key in sums else row
        return Statistics(sums.values())

    def _table(self) -> list[tuple[str, ...]]:
        """The cells of the table that `repr` shows, its head first."""
        rows = [("stage", "step", "seconds", "ms / call", "calls", "samples", "MB")]
        for m in self:
            milliseconds_per_call = 1e3 * m.seconds / max(m.calls, 1)
            rows.append(
                (
                    m.stage,
                    m.step,
                    f"{m.seconds:.3f}",
                    f"{milliseconds_per_call:.3f}",
                    str(m.calls),
                    str(m.samples),
                    f"{m.bytes / 1e6:.3f}",
                )
            )
        return rows

    def _repr_html_(self) -> str:
        """The form in notebooks: a table, with a bar for the seconds of each row."""
        longest = max((m.seconds for m in self), default=0.0) or 1.0
        head, *rows = self._table()
        lines = ["".join(f"<th>{x}</th>" for x in (*head, ""))]
        for m, row in zip(self, rows, strict=True):
            bar = f'<td><div style="background: #76b900; height: 0.8em; width: {8 * m.seconds / longest:.2f}em"></div></td>'
            lines.append("".join(f"<td>{html.escape(x)}</td>" for x in row) + bar)
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def __repr__(self) -> str:
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        # The first two columns, stage and step, are texts and aligned left; numbers are aligned right.
        lines = [
            "  ".join(x.ljust(w) if i < 2 else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)


def storage_rows(step: str, counts: Mapping[str, int]) -> list[Measured]:
    """The rows for a reader's storage, from `Source.counts`."""
    if not counts:
        return []
    return [
        Measured("fetch", step, calls=counts["requests"], bytes=counts["bytes"]),
        Measured("retry", step, calls=counts["retries"]),
        Measured("cache", step, calls=counts["cached"]),
        Measured("damaged", step, calls=counts["damaged"]),
    ]


def cache_rows(step: str, counts: Mapping[str, int]) -> list[Measured]:
    """The rows for a decoder's cache, from `CacheUse.counts`."""
    return [
        Measured("cache", step, samples=counts["hits"], bytes=counts["bytes"]),
        Measured("miss", step, samples=counts["misses"]),
    ]


_OPERATOR_STAGES = ("read", "host", "setup", "to host")  # of a single operator; other stages are of a whole program


class Meter:
    """Names the stages in JAX's profiles, and measures them if enabled.

    Args:
      enabled: whether it measures.
    """

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self._rows: dict[tuple[str, str], Measured] = {}
        self._lock = threading.Lock()  # guards `_rows`

    def stage(self, stage: str, operators: str, step: str) -> contextlib.AbstractContextManager[object]:
        """Returns a context in which a step's stage runs.

        Args:
          operators: the names of the step's operators, for profiles. For a stage of a single operator, profiles also
            show the name that the user gave it.
          step: the step, for the statistics.
        """
        annotation = self.annotation(stage, profile_name(operators, step) if stage in _OPERATOR_STAGES else operators)
        return self._timed(annotation, stage, step) if self.enabled else annotation

    def annotation(self, stage: str, operators: str) -> TraceAnnotation:
        """Returns a context that names steps in a profile, and measures nothing."""
        return TraceAnnotation(f"jaxdali {stage} {operators}")

    def count(self, stage: str, step: str, samples: int, nbytes: int):
        """Adds samples and bytes. Call it only if enabled, because it may take time to determine the numbers."""
        self._add(Measured(stage, step, samples=samples, bytes=nbytes))

    def took(self, stage: str, step: str, seconds: float, samples: int):
        """Adds the time of one call, which was measured elsewhere."""
        self._add(Measured(stage, step, seconds, calls=1, samples=samples))

    @contextlib.contextmanager
    def _timed(self, annotation: TraceAnnotation, stage: str, step: str) -> Iterator[None]:
        """Runs `annotation`, and adds the time that its body takes as one call."""
        start = time.perf_counter()
        try:
            with annotation:
                yield
        finally:
            self._add(Measured(stage, step, time.perf_counter() - start, calls=1))

    def _add(self, row: Measured):
        """Adds to the row of a stage and step."""
        key = row.stage, row.step
        with self._lock:
            self._rows[key] = self._rows[key] + row if key in self._rows else row

    def seconds(self, stage: str, step: str) -> float:
        """The seconds of a step in a stage so far."""
        with self._lock:
            row = self._rows.get((stage, step))
        return 0.0 if row is None else row.seconds

    def statistics(self) -> Statistics:
        """The rows measured so far."""
        with self._lock:
            return Statistics(self._rows.values())
