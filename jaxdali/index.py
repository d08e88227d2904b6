"""``python -m jaxdali.index FILE...``: writes the indices of TFRecord files (also compressed by GZIP or ZLIB) and
WebDataset archives, beside them or into a folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from ._data.index import write_index


def _progress(path: str) -> tuple[Callable[[int], object], Callable[[], object]]:
    """Returns two functions: one adds bytes that were read to a progress bar, one closes it. There is a bar if tqdm is
    installed and the output is a terminal.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda n: None, lambda: None
    bar = tqdm(
        total=os.path.getsize(path),
        unit="B",
        unit_scale=True,
        desc=os.path.basename(path),
        disable=not sys.stderr.isatty(),
    )
    return bar.update, bar.close


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool. Returns 0, or 1 if a file could not be indexed."""
    parser = argparse.ArgumentParser(
        "python -m jaxdali.index",
        description="Writes indices as DALI's tfrecord2idx and wds2idx do: FILE.idx for each TFRecord file or tar archive.",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a TFRecord file, also compressed by GZIP or ZLIB, or a tar archive"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="where the indices are written; default: beside the files"
    )
    options = parser.parse_args(arguments)
    status = 0
    for path in options.files:
        index = os.path.join(options.output or os.path.dirname(path), f"{os.path.basename(path)}.idx")
        try:
            update, close_bar = _progress(path)
            try:
                count = write_index(path, index, update)
            finally:
                close_bar()
            print(f"{index}: {count} records")
        except (OSError, RuntimeError) as e:
            print(f"can't read {e.filename}: {e.strerror}" if isinstance(e, OSError) else e, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
