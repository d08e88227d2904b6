"""The command line of ``python -m jaxdali.benchmark``."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import sys
from collections.abc import Sequence

import jax

from .. import __version__
from .._core.errors import ArgumentError
from .._core.system import available_cpus
from . import _comparison, _decoders, _definitions, _measure, _page, _report

BATCH_SIZES = (16, 64, 256)
_PROFILED_BATCHES = 5


def _numbers(text: str) -> list[int]:
    """Parses an argument: whole numbers above 0, separated by commas. argparse reports a ValueError."""
    numbers = [int(x) for x in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return sorted(set(numbers))


_numbers.__name__ = "list of whole numbers"  # argparse shows it in messages


def _arguments(argv: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parses and checks the arguments. Exits with status 2 if they are wrong."""
    parser = argparse.ArgumentParser(
        "python -m jaxdali.benchmark",
        description="Measures a pipeline on a folder of images: throughput against threads and batch size, what bounds it, and settings. "
        "With --decoders it measures image decoders on them instead.",
    )
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path, help="images, in folders of any depth")
    parser.add_argument(
        "--rounds",
        type=int,
        help="of measurements; default: 2, of which the fastest count; with --decoders 5, and medians",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=pathlib.Path,
        help="write the report with its plots into this file, too: one page that needs no other",
    )
    pipeline_group = parser.add_argument_group("pipelines")
    pipeline_group.add_argument(
        "--pipeline",
        metavar="MODULE:FUNCTION",
        help="a pipeline definition of your own, which gets DIR if it has a parameter for it; MODULE may be a file. Default: random "
        "crop, resize to 224x224, mirror, normalise",
    )
    cores = available_cpus()
    powers = [1 << k for k in range(cores.bit_length()) if 1 << k <= cores]
    threads = sorted({*powers, cores})
    pipeline_group.add_argument(
        "--threads", type=_numbers, help=f"num_threads to try; default: {','.join(map(str, threads))}"
    )
    sizes = ",".join(map(str, BATCH_SIZES))
    pipeline_group.add_argument("--batch-sizes", type=_numbers, help=f"batch sizes to try; default: {sizes}")
    pipeline_group.add_argument("--seconds", type=float, help="of each measurement; default: 2")
    pipeline_group.add_argument(
        "--step-ms", type=float, help="time of a training step, which is waited for after each batch; default: 0"
    )
    decoder_group = parser.add_argument_group("decoders")
    decoder_group.add_argument(
        "--decoders",
        action="store_true",
        help="compare the installed ones of jaxdali, Pillow, simplejpeg, PyTurboJPEG, OpenCV, imagecodecs, torchvision and torchcodec, "
        "each in one thread, by format, size and quality",
    )
    decoder_group.add_argument("--files", type=int, help="how many files of DIR, evenly spaced; default: 200")
    args = parser.parse_args(argv)
    # Defaults. argparse has none, so that options which do not fit --decoders are noticed.
    pipelines = {"pipeline": None, "threads": threads, "batch_sizes": list(BATCH_SIZES), "seconds": 2.0, "step_ms": 0.0}
    decoders = {"files": 200}
    unused, message = (
        (pipelines, "--decoders takes no") if args.decoders else (decoders, "without --decoders there is no")
    )
    for name in unused:
        if getattr(args, name) is not None:
            parser.error(f"{message} --{name.replace('_', '-')}")
    for name, value in {"rounds": 5 if args.decoders else 2, **pipelines, **decoders}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.seconds <= 0 or args.rounds < 1 or args.step_ms < 0 or args.files < 1:
        parser.error("--seconds, --rounds and --files must be positive, --step-ms not negative")
    return parser, args


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the results. Returns 0, or 2 if there is nothing to measure."""
    parser, args = _arguments(arguments)
    try:
        if args.decoders:
            _compare_decoders(args)
            return 0
        if args.pipeline is None:
            files = _definitions.find_images(args.folder)
            make_pipeline, description = (
                _definitions.imagenet_train(files),
                "random crop, resize to 224x224, mirror, normalise",
            )
            size = sum(map(os.path.getsize, files)) / len(files)
            data = f"{args.folder}: {len(files)} images of {size / 1e3:.0f} KB on average"
        else:
            if not args.folder.exists():
                raise _definitions.UsageError(f"{args.folder} is not there")
            make_pipeline, description, data = (
                _definitions.of_user(args.pipeline, str(args.folder)),
                args.pipeline,
                str(args.folder),
            )
        _measure_pipeline(args, make_pipeline, f"{data}\npipeline: {description}")
    except (_definitions.UsageError, ArgumentError, RuntimeError) as e:
        print(f"{parser.prog}: {e}", file=sys.stderr)
        return 2
    return 0


def _compare_decoders(args: argparse.Namespace):
    """Measures image decoders, prints the comparison, and writes its page."""
    paths = _definitions.find_images(args.folder)
    selected = [paths[k * len(paths) // args.files] for k in range(args.files)] if len(paths) > args.files else paths
    files, bad = _decoders.classify_files(selected)
    if not files:
        raise _definitions.UsageError(
            f"{args.folder}: no image can be read; {next(iter(bad))}: {next(iter(bad.values()))}"
        )
    print(
        f"{args.folder}: {len(selected)} of {len(paths)} images, {args.rounds} rounds, {available_cpus()} cores",
        flush=True,
    )
    _print_load_warning()
    # One tick for each file in each round, and in the first pass, which compares the pixels.
    tick, set_label, close_bar = _report.progress(len(files) * (args.rounds + 1))
    try:
        with _decoders.installed() as (decoders, unusable):
            set_label("decoders")
            groups, failed = _decoders.compare(files, decoders, args.rounds, tick)
    finally:
        close_bar()
    # The name of a decoder is that of its library and the version; the keys of `unusable` are names of libraries.
    installed_names = {d.name.split()[0] for d in decoders} | unusable.keys()
    missing_names = [name for name in _decoders.library_names() if name not in installed_names]
    print("", *_comparison.tables(groups), *_comparison.notes(failed, bad, unusable, missing_names), sep="\n")
    if args.html is not None:
        parts = [
            _page.paragraph(
                f"{args.folder}: {len(selected)} of {len(paths)} images, medians of {args.rounds} measurements"
            )
        ]
        for group in groups:
            name, rows = _comparison.table_rows(group)
            parts.append(_page.heading(name))
            if group.results:
                parts += [_page.decoder_plot(group.results), _page.table(rows, texts=1)]
            else:
                parts.append(_page.paragraph("no decoder takes them"))
        parts += map(_page.paragraph, _comparison.notes(failed, bad, unusable, missing_names))
        _write_page(args.html, "Speed of image decoders", parts)


def _environment() -> str:
    """Describes the versions and the machine."""
    return f"jaxdali {__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}, {available_cpus()} cores"


def _write_page(path: pathlib.Path, title: str, parts: Sequence[str]):
    """Writes an HTML page of parts, with a footer about the environment."""
    footer = f"{_environment()}; Python {platform.python_version()}, {platform.machine()}; {datetime.datetime.now():%Y-%m-%d %H:%M}"
    if warning := _load_warning():
        footer += f"\n{warning}"
    path.write_text(_page.page(title, [*parts, f"<footer>{_page.paragraph(footer)}</footer>"]), encoding="utf-8")
    print(f"{path} written")


def _load_warning() -> str:
    """A sentence for a machine with other work, else ""."""
    load, _, _ = os.getloadavg()  # processes that run or wait for a core, on average over the last minute
    return (
        f"The machine has other work (load {load:.1f}), so these are not its best figures."
        if load > 0.25 * available_cpus()
        else ""
    )


def _print_load_warning():
    """Prints the warning about other work, if there is one."""
    if warning := _load_warning():
        print(f"{warning}\n", flush=True)


def _measure_pipeline(args: argparse.Namespace, make_pipeline: _definitions.Make, description: str):
    """Measures a pipeline, prints the report, and writes its page."""
    print(f"{_environment()}\n{description}\n", flush=True)
    is_busy = bool(_load_warning())  # read now, because the measurements add to the load
    _print_load_warning()
    middle_size = args.batch_sizes[len(args.batch_sizes) // 2]
    step = args.step_ms / 1e3  # seconds
    # One tick for each measurement, and one for the profile. The middle batch size is measured with the threads.
    tick, set_label, close_bar = _report.progress(args.rounds * (len(args.threads) + len(args.batch_sizes) - 1) + 1)

    def fastest_runs(threads: Sequence[int], sizes: Sequence[int]) -> list[_measure.Run]:
        """Measures all settings, which take turns in each round. Returns the fastest run of each."""
        runs: dict[tuple[int, int], _measure.Run] = {}
        for _ in range(args.rounds):
            for key in ((t, b) for t in threads for b in sizes):
                num_threads, batch_size = key
                set_label(f"num_threads={num_threads} batch_size={batch_size}")
                run = _measure.measure(make_pipeline, num_threads, batch_size, args.seconds, step, tick)
                runs[key] = max(run, runs.get(key, run), key=lambda r: r.images_per_second)
        return list(runs.values())

    # First the threads with a middle batch size, then the batch sizes with the recommended threads.
    try:
        by_threads = fastest_runs(args.threads, [middle_size])
        best = _measure.recommended(by_threads)
        by_batch = [*fastest_runs([best.num_threads], [b for b in args.batch_sizes if b != middle_size]), best]
        by_batch.sort(key=lambda r: r.batch_size)
        best = _measure.recommended(by_batch)
        set_label("operators")
        operator_seconds = _measure.operators_in_programs(
            make_pipeline, best.num_threads, best.batch_size, _PROFILED_BATCHES
        )
        tick(1)
    finally:
        close_bar()
    costs_of_batch = _measure.costs(best, operator_seconds)
    speed_rows = _report.speeds([*by_threads, *(r for r in by_batch if r.batch_size != middle_size)])
    title, cost_rows = _report.where_time_goes(best, costs_of_batch)
    sentences = [
        *_report.verdict(
            best, costs_of_batch, _measure.bound_of(best, costs_of_batch), _measure.recommended_depth(best), is_busy
        )
    ]
    if bad_files := sorted({f for r in (*by_threads, *by_batch) for f in r.bad}):
        sentences.append(
            f"Not decoded: {len(bad_files)} files, {', '.join(bad_files[:3])}{', ...' if len(bad_files) > 3 else ''}"
        )
    print(
        *_report.table(speed_rows, texts=0),
        "",
        f"{title}:",
        "",
        *_report.table(cost_rows, texts=2),
        "",
        *sentences,
        sep="\n",
    )
    if args.html is not None:
        parts = [
            _page.paragraph(description),
            _page.paragraph(sentences[0], "verdict"),
            *map(_page.paragraph, sentences[1:]),
            _page.pipeline_plots(by_threads, by_batch, best, costs_of_batch),
            *(_page.heading("Throughput"), _page.table(speed_rows, texts=0)),
            *(_page.heading(title), _page.table(cost_rows, texts=2)),
        ]
        _write_page(args.html, "Speed of a pipeline", parts)


if __name__ == "__main__":
    sys.exit(main())
