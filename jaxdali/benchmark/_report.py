"""Formats the measurements as sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._core.system import available_cpus
from ._measure import Bound, Cost, Run

_ADVICE = {
    "storage": "faster storage, larger files (readers.array_record, readers.tfrecord, readers.webdataset), or storage=jaxdali.Storage(...)",
    "decode": "more cores",
    "operator": "more cores, or the operator on an accelerator",
    "Python": "larger batches; fewer Python functions in the pipeline",
    "consumer": "nothing: batches are ready before they are requested",
}
_NAMES = {
    "storage": "storage",
    "decode": "decoding",
    "Python": "Python (the host's part of operators, and dispatch)",
    "consumer": "the consumer",
}
_MIN_SHARE = 0.01  # smallest share of a batch's time that gets a row


def table(rows: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """The lines of a table, its head first. The first `texts` columns are aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for k, row in enumerate(rows):
        cells = (x.ljust(w) if i < texts else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()
        if k == 0:
            yield "  ".join("-" * w for w in widths)


def speeds(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """The rows of a table of throughput by threads and batch size."""
    rows: list[tuple[str, ...]] = [("num_threads", "batch_size", "images/s", "CPU ms/image", "busy cores")]
    for r in runs:
        rows.append(
            (
                str(r.num_threads),
                str(r.batch_size),
                f"{r.images_per_second:.0f}",
                f"{1e3 * r.cpu:.2f}",
                f"{r.cores:.1f}",
            )
        )
    return rows


def where_time_goes(run: Run, costs: Sequence[Cost]) -> tuple[str, list[tuple[str, ...]]]:
    """A title, and the rows of a table of the costs of a batch, whose first two columns are texts."""
    rows: list[tuple[str, ...]] = [("stage", "operator", "ms/batch", "us/image", "share")]
    for stage, operator, seconds, share in cost_shares(costs):
        rows.append((stage, operator, f"{1e3 * seconds:.2f}", f"{1e6 * seconds / run.batch_size:.0f}", f"{share:.0%}"))
    return f"Where the time of a batch goes (num_threads={run.num_threads}, batch_size={run.batch_size})", rows


def cost_shares(costs: Sequence[Cost]) -> Iterator[tuple[str, str, float, float]]:
    """Yields stage, operator, seconds and share of the larger costs, and of the small ones together."""
    total = sum(c.seconds for c in costs) or 1.0
    large = [c for c in costs if c.seconds >= _MIN_SHARE * total]
    yield from ((c.stage, c.operator, c.seconds, c.seconds / total) for c in large)
    if small := len(costs) - len(large):
        seconds = sum(c.seconds for c in costs) - sum(c.seconds for c in large)
        yield "", f"{small} more", seconds, seconds / total


def verdict(run: Run, costs: Sequence[Cost], bound: Bound, depth: int, is_busy: bool = False) -> Iterator[str]:
    """Yields sentences: the limit of the pipeline, advice, and recommended settings.

    Args:
      run: the fastest run.
      costs: of its batches.
      bound: its limit.
      depth: the recommended number of batches made ahead.
      is_busy: whether the machine is busy with other work. Then there is no advice.
    """
    share = (
        f"it waits for batches {1 - bound.share:.0%} of the time"
        if bound.kind == "consumer"
        else f"{bound.share:.0%} of a batch's time"
    )
    cores = available_cpus()
    # The limit is one of the kinds in `_NAMES`, or an operator.
    yield f"Bound by: {_NAMES.get(bound.kind, bound.operator)} ({share}; {run.cores:.1f} of {cores} cores busy)"
    settings = f"num_threads={run.num_threads}, batch_size={run.batch_size}, prefetch_queue_depth={depth}"
    if is_busy:
        yield f"Fastest beside the machine's other work: {settings}: {run.images_per_second:.0f} images/s"
        yield "What helps can be said of a machine without other work only: measure again there"
        return
    advice = _ADVICE[bound.kind]
    # Whole images are decoded in each epoch, which other operators and settings can avoid.
    if bound.kind == "decode" and any(c.operator == "decoders.image" for c in costs):
        advice += "; decoders.image_random_crop where only a window is used, dct_scaling=True for large photos, cache= for small sets"
    yield f"What helps: {advice}"
    yield f"Recommended: {settings}: {run.images_per_second:.0f} images/s"


def progress(total: float) -> tuple[Callable[[float], Any], Callable[[str], Any], Callable[[], Any]]:
    """Returns three functions: one adds work to the progress bar, one sets its label, one closes it. There is a bar if
    tqdm is installed and the output is a terminal.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda n: None, lambda text: None, lambda: None
    form = "{desc:<34}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    bar = tqdm(total=total, disable=None, leave=False, bar_format=form)  # None: no bar unless the output is a terminal
    return bar.update, bar.set_description_str, bar.close
