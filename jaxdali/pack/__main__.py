"""The command line of ``python -m jaxdali.pack``."""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import dataclasses
import importlib
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import tfrecord
from .._core.errors import ArgumentError, OperatorError, printable
from .._core.system import available_cpus
from ._shards import Packing, Report, open_reader, reader_of, write_shard
from ._writers import WRITERS

_DESCRIPTION = """\
Writes the records of any reader as shards of WebDataset (tar), TFRecord or
ArrayRecord files, for fast reading later.

A folder of images, one folder for each class:
  python -m jaxdali.pack photos out
Images are made smaller, and encoded as JPEG of quality 90:
  python -m jaxdali.pack photos out --resize-shorter 256
Archives, and files of TensorFlow:
  python -m jaxdali.pack readers.webdataset paths=a.tar,b.tar ext=jpg,cls out
  python -m jaxdali.pack readers.tfrecord path=a.tfrecord \\
    features=image/encoded:string,label:int64 out

A run that was stopped, even by kill -9, goes on with the shards that are
missing when it is started again.
"""
_MAX_LISTED = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool. Returns 0; 1 if nothing could be packed; 2 for wrong arguments."""
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    try:
        packing = _packing(options)
        os.makedirs(os.path.join(packing.target, ".pack"), exist_ok=True)
        records = _count_records(packing)
        shards = options.shards or max(1, -(-records // options.samples_per_shard))
        packing = dataclasses.replace(packing, shards=min(shards, max(records, 1)))
        _write_manifest(packing, records)
    except (ArgumentError, OperatorError, TypeError, ValueError, OSError, ImportError) as e:
        print(printable(f"{parser.prog}: {e}"), file=sys.stderr)
        return 2
    finished = {i: r for i in range(packing.shards) if (r := Report.of_finished(packing, i)) is not None}
    if finished:
        print(f"{len(finished)} of {packing.shards} shards are there from an earlier run")
    missing = [i for i in range(packing.shards) if i not in finished]
    update, close = _progress(records, done=sum(r.records + len(r.bad) for r in finished.values()))
    run = _in_ray if options.ray else _in_processes
    try:
        for i, report in run(packing, missing, options.workers):
            finished[i] = report
            update(report.records + len(report.bad))
    except (OperatorError, ArgumentError, OSError, RuntimeError) as e:
        print(printable(f"{parser.prog}: {e}"), file=sys.stderr)
        return 1
    finally:
        close()
    print(_summary([finished[i] for i in sorted(finished)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        "python -m jaxdali.pack",
        usage="%(prog)s [options] (FOLDER | READER key=value ...) TARGET",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source",
        metavar="FOLDER | READER key=value",
        nargs="+",
        help="a folder of files, or a reader and its arguments",
    )
    parser.add_argument("target", metavar="TARGET", help="the folder of the shards; it is made if it is not there")
    parser.add_argument(
        "--format", choices=list(WRITERS), default="webdataset", help="of the shards; default: %(default)s"
    )
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--shards", type=_positive, metavar="N", help="number of shards")
    number.add_argument("--samples-per-shard", type=_positive, metavar="N", default=10_000, help="default: %(default)s")
    parser.add_argument(
        "--prefix", default="data", help="of the files' names: PREFIX-00000-of-00012.tar; default: %(default)s"
    )
    parser.add_argument(
        "--names", type=lambda text: tuple(text.split(",")), metavar="NAME,...", help="of the reader's outputs"
    )
    parser.add_argument(
        "--image", metavar="NAME", help="the output with the images that are encoded anew; default: the first"
    )
    parser.add_argument(
        "--resize-shorter", type=_positive, metavar="PIXELS", help="makes larger images smaller, to this shorter side"
    )
    parser.add_argument(
        "--quality", type=_quality, default=90, help="of the JPEG files that this makes, 1 to 100; default: %(default)s"
    )
    parser.add_argument(
        "--on-error",
        choices=["skip", "raise"],
        default="skip",
        help="bad samples are left out and reported, or stop it",
    )
    parser.add_argument(
        "--workers", type=_positive, default=available_cpus(), metavar="N", help="processes; default: %(default)s"
    )
    parser.add_argument(
        "--ray", action="store_true", help="runs on a cluster of Ray, with a task of one CPU for each shard"
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


_positive.__name__ = "number above 0"  # argparse shows it in messages


def _quality(text: str) -> int:
    if not 1 <= (number := int(text)) <= 100:
        raise ValueError
    return number


_quality.__name__ = "quality, 1 to 100,"


def _packing(options: argparse.Namespace) -> Packing:
    """The options of a run from those of the command line. Raises ArgumentError for arguments that a reader can't have."""
    source, *pairs = options.source  # a folder, or a reader and "key=value" for each of its arguments
    if not pairs and os.path.isdir(source):
        reader, arguments = "readers.file", {"file_root": os.path.abspath(source)}
    else:
        reader = source
        reader_of(reader)  # raises ArgumentError if there is no such reader
        arguments = dict(_argument(pair, reader) for pair in pairs)
    for name in ("num_shards", "shard_id", "on_error", "name", "pad_last_batch", "stick_to_shard", "device"):
        if name in arguments:
            raise ArgumentError(
                f"{reader}: {name} is determined by the shards that are written"
                + (", use --on-error" if name == "on_error" else "")
            )
    reader_name = reader.removeprefix("fn.").removeprefix("readers.")
    return Packing(
        reader=f"readers.{reader_name}",
        arguments=arguments,
        target=os.path.abspath(options.target),
        format=options.format,
        prefix=options.prefix,
        names=options.names,
        resize_shorter=options.resize_shorter,
        quality=options.quality,
        image=options.image,
        on_error=options.on_error,
    )


def _argument(pair: str, reader: str) -> tuple[str, Any]:
    """Parses ``key=value`` of a reader. A value is a Python literal, a list of texts separated by commas, or a text."""
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise ArgumentError(f"expected key=value, an argument of the reader, got {pair!r}")
    if name == "features" and reader.rpartition(".")[2] != "tfds":  # whose features have no types
        return name, _features(text)
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text.split(",") if "," in text else text


def _features(text: str) -> dict[str, Any]:
    """Parses the features of TFRecord files: ``image/encoded:string,label:int64``."""
    features: dict[str, Any] = {}
    for field in text.split(","):
        name, _, type_name = field.rpartition(":")
        if type_name not in tfrecord.FeatureType.__members__ or not name:
            raise ArgumentError(
                f"features: expected NAME:TYPE with one of {', '.join(tfrecord.FeatureType.__members__)}, got {field!r}"
            )
        feature_type = tfrecord.FeatureType[type_name]
        # A string is one value, numbers are a vector of any length; the last argument is the default.
        features[name] = (
            tfrecord.FixedLenFeature((), feature_type, "")
            if feature_type == tfrecord.string
            else tfrecord.VarLenFeature(feature_type, 0)
        )
    return features


def _count_records(packing: Packing) -> int:
    """Returns the number of records. It opens the reader and a writer, so that wrong arguments are reported at once."""
    writer_class, _ = WRITERS[packing.format]
    writer_class(os.path.join(packing.target, ".pack", "test")).close()
    os.unlink(os.path.join(packing.target, ".pack", "test"))
    executor, names = open_reader(packing, shard=0, shards=1)
    try:
        if packing.image is not None and packing.image not in names:
            raise ArgumentError(f"--image {packing.image}: the outputs are {', '.join(names)}")
        # `open_reader` gives the reader this name. It reads all records as its only shard.
        return executor.reader.named["reader"].metas[0]["epoch_size"]
    finally:
        executor.close()


def _write_manifest(packing: Packing, records: int):
    """Writes the arguments of this run into the target folder, for later runs that continue it.

    Raises:
      ArgumentError: the folder has shards of a run with other arguments.
    """
    path = os.path.join(packing.target, ".pack", f"{packing.prefix}.json")
    fields = dataclasses.asdict(packing)
    fields.pop("target")  # the folder may be moved
    # As it is read from the file, to compare it: tuples have become lists.
    manifest = json.loads(
        json.dumps({**fields, "arguments": repr(sorted(packing.arguments.items())), "records": records})
    )
    if os.path.exists(path):
        with open(path) as f:
            earlier_manifest = json.load(f)
        different = [
            f"{k} is {manifest.get(k)} now and was {earlier_manifest.get(k)}"
            for k in manifest
            if manifest.get(k) != earlier_manifest.get(k)
        ]
        if different:
            raise ArgumentError(
                f"{packing.target} holds shards of another run: {'; '.join(different)}. Take another folder, another --prefix, or remove "
                f"{os.path.join(packing.target, '.pack')}"
            )
    else:
        with open(f"{path}.partial", "w") as f:
            json.dump(manifest, f, indent=1)
        os.replace(f"{path}.partial", path)


def _in_processes(packing: Packing, shards: Sequence[int], workers: int) -> Iterator[tuple[int, Report]]:
    """Writes shards in processes of this machine; a single shard in this process, with `workers` threads."""
    if len(shards) < 2 or workers == 1:
        packing = dataclasses.replace(packing, num_threads=workers)
        yield from ((i, write_shard(packing, i)) for i in shards)
        return
    context = multiprocessing.get_context("spawn")  # JAX's threads do not survive a fork
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(shards)), context) as pool:
        futures = {pool.submit(write_shard, packing, i): i for i in shards}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_ray(packing: Packing, shards: Sequence[int], workers: int) -> Iterator[tuple[int, Report]]:
    """Writes shards as tasks of Ray, of which the cluster decides how many run at once; `workers` has no effect."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as e:
        raise RuntimeError("--ray needs the package ray: pip install ray") from e
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    write: Any = ray.remote(write_shard)
    task = write.options(num_cpus=1, max_retries=3, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}})
    pending = {task.remote(packing, i): i for i in shards}
    while pending:
        (ready, *_), _ = ray.wait(list(pending))
        yield pending.pop(ready), ray.get(ready)


def _progress(total: int, done: int) -> tuple[Callable[[int], object], Callable[[], object]]:
    """Returns two functions: one adds records to the progress bar, one closes it. There is a bar if tqdm is installed
    and the output is a terminal.

    Args:
      total: number of records.
      done: how many of them earlier runs have written.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda n: None, lambda: None
    bar = tqdm(total=total, initial=done, unit="record", unit_scale=True, disable=not sys.stderr.isatty())
    return bar.update, bar.close


def _summary(reports: Sequence[Report]) -> str:
    """Describes the shards that were written, and bad samples."""
    records, size = sum(r.records for r in reports), sum(r.size for r in reports)
    lines = [
        f"{records} records in {len(reports)} shard{'s' * (len(reports) != 1)}, {size / 1e6:.1f} MB: {_pattern(reports)}"
    ]
    if images := sum(r.images for r in reports):
        lines.append(f"{images} images were encoded anew")
    bad = [entry for r in reports for entry in r.bad]
    if bad:
        lines.append(f"{len(bad)} bad samples were left out:")
        lines += [printable(f"  {path}: {reason}") for path, reason in bad[:_MAX_LISTED]]
        if len(bad) > _MAX_LISTED:
            lines.append(
                f"  and {len(bad) - _MAX_LISTED} more; all are in the files of {os.path.join(os.path.dirname(reports[0].file), '.pack')}"
            )
    return "\n".join(lines)


def _pattern(reports: Sequence[Report]) -> str:
    """The names of all files as one pattern, with braces as WebDataset expands them."""
    first, last = reports[0].file, reports[-1].file  # reports are in the order of their shards
    if first == last:
        return first
    a, b = (re.search(r"-(\d+)-of-", os.path.basename(f)) for f in (first, last))
    assert a is not None and b is not None
    return first.replace(f"-{a[1]}-of-", f"-{{{a[1]}..{b[1]}}}-of-")


if __name__ == "__main__":
    sys.exit(main())
