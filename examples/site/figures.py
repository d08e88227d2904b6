"""Figures of the site's pages, by the names that pages write in double braces. They are read from
tests/benchmarks/RESULTS.md and pyproject.toml. A section, a row or a column that is missing there is an error.
"""

import html
import pathlib
import re
import runpy
import tomllib
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve()
ROOT = next(folder for folder in HERE.parents if (folder / "tests" / "benchmarks" / "RESULTS.md").exists())
BENCHMARKS = ROOT / "tests" / "benchmarks"

# The purpose of each extra of pyproject.toml. One that is missing here, or gone there, is an error.
EXTRAS = {
    "array_record": "`readers.array_record`: files that are compressed by zstd; Brotli and Snappy need pyarrow",
    "audio": "`decoders.audio`, `readers.nemo_asr`",
    "benchmark": "a plot and a progress bar of `python -m jaxdali.benchmark`",
    "coco": "`readers.coco`: faster annotations, and pixelwise masks",
    "containers": "`readers.caffe`, `readers.caffe2`: LMDB databases",
    "cuda13": "JAX with CUDA 13, and the CUDA kernels as a package of their own",
    "examples": "what the examples need, with Flax and optax",
    "flax": "the examples that train",
    "formats": "images: JPEG XL, AVIF, HEIC; TIFF, PNM and JPEG 2000 of 16 bits",
    "lz4": "`decoders.inflate`",
    "pack": "`python -m jaxdali.pack --format array_record`",
    "parquet": "`readers.parquet`",
    "ray": "batches that Ray's workers make: `jaxdali.ray`",
    "remote": "URLs; each kind needs a package of its own, such as s3fs, gcsfs or huggingface_hub",
    "torch": "iterators for PyTorch: `jaxdali.plugin.pytorch`",
    "video": "`decoders.video`, `readers.video`, `readers.video_resize`",
}


def substitutions() -> dict[str, str]:
    """Markdown by name: tables, and single figures."""
    speed = runpy.run_path(str(BENCHMARKS / "draw_speed.py"))
    values = {
        "version": version(),
        "python": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">="),
        "citation": citation(),
        "speed_bars": draw_bars(speed["numbers"](), speed["PIPELINES"]),
        "speed_table": speed["table"](speed["numbers"]()),
        "extras_table": extras_table(),
        "versions_table": versions_table(),
    }
    return values | cpu_figures() | gpu_figures()


def cpu_figures() -> dict[str, str]:
    """Figures of the part "CPUs" of RESULTS.md."""
    minutes = read_table("Installation and tests", "minutes")
    cores = read_table("Many cores, simulated", "cores")
    locks = read_table("Many cores, simulated", "without it")
    pipelines = read_table("Pipelines, beside other libraries", "Xeon")
    targets = read_table("Pipelines, beside other libraries", "page faults per batch")
    memory = [
        [row[0], *read_cell(targets, row[0], "MB at most, DALI's").split(", ")]
        for row in targets[1:]
        if row[0] in ("decode", "resize", "rotate", "train", "eval")
    ]
    return {
        "minutes_install": read_cell(minutes, "the first command", "minutes"),
        "minutes_tests": read_cell(minutes, "the second command", "minutes"),
        "minutes_one_gpu": read_cell(minutes, "CUDA kernels for one GPU", "minutes"),
        "minutes_all_gpus": read_cell(minutes, "CUDA kernels for all GPUs", "minutes"),
        "xeon_table": show_table(pipelines, ["decode", "resize", "rotate", "train", "eval"]),
        "cores_table": show_table(cores, ["images/s", "efficiency"]),
        "lock_table": show_table(locks, ["efficiency with the lock", "without it"]),
        "memory_table": make_table([["peak MB", "jaxdali", "DALI 2.4"], *memory]),
        "start_table": show_table(
            read_table("Stalls", "import of JAX"),
            ["import of JAX", "of jaxdali", "until the first batch", "in all"],
            without="before",
        ),
        "waits_table": show_table(read_table("Stalls", "limit"), ["median", "longest"]),
        "formats_table": show_table(
            read_table("All formats in one run", "DALI 2.4"), ["jaxdali", "DALI 2.4", "OpenCV 5.0"]
        ),
        "decoders_table": show_table(read_table("Decoders on files of your own", "simplejpeg 1.9.0")),
        "sound_table": show_table(read_table("Sound", "CPU ms per clip"), ["CPU ms per clip"]),
        "video_table": show_table(
            read_table("Video", "wall, of the pool's"), ["wall, of the pool's", "CPU, of the pool's"]
        ),
        "functions_table": show_table(read_table("Functions of values", "ratio"), ["time", "ratio"]),
    }


def gpu_figures() -> dict[str, str]:
    """Figures of the part "GPUs" of RESULTS.md."""
    images = read_table("Images per second", "first, H100")
    nvjpeg = read_table("Images per second", "times nvJPEG: first")  # below the table of images per second
    training = read_table("Images per second", "kernels")
    kernels = read_table("The decoder's kernels", "whole photos: first")
    host = read_table("The host's part, on CPU devices that play GPUs", "one GPU")
    return {
        "gpu_images_table": show_table(
            images, ["first, H100", "second, H100", "last, H200"], without="ms of a batch with 8 threads"
        ),
        "gpu_decode_table": show_table(nvjpeg),
        "gpu_training_table": show_table(training, training[0][1:-1]),
        "gpu_transfer_times_nvjpeg": read_cell(nvjpeg, "with the transfer", "times nvJPEG: last"),
        "gpu_kernel_ms": read_cell(kernels, "all", "`train`: last"),
        "gpu_host_one": read_cell(host, "random crop, resize, normalise", "one GPU"),
        "gpu_host_eight": read_cell(host, "random crop, resize, normalise", "eight GPUs"),
    }


def read_table(title: str, column: str) -> list[list[str]]:
    """The rows, the first one being the header, of the table below a heading of RESULTS.md that has this column."""
    text = (BENCHMARKS / "RESULTS.md").read_text()
    section = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    if not section:
        raise LookupError(f"RESULTS.md has no section {title!r}")
    for block in re.findall(r"(?:^\|.*\n)+", section[1], re.MULTILINE):
        lines = block.splitlines()
        # Bold marks a missed target in RESULTS.md, and has no meaning elsewhere.
        rows = [[cell.replace("**", "").strip() for cell in line.strip("|").split("|")] for line in lines]
        if column in rows[0]:
            del rows[1]  # the line of dashes
            rows[0] = name_columns(rows[0])
            return rows
    raise LookupError(f"the section {title!r} of RESULTS.md has no table with the column {column!r}")


def name_columns(header: list[str]) -> list[str]:
    """Gives columns of the same name that of their group: `ms: first | last | ratio: first | last` has `ms: last` and
    `ratio: last`.
    """
    names, group = [], ""
    for cell in header:
        group = cell.partition(":")[0] if ":" in cell else group
        names.append(f"{group}: {cell}" if header.count(cell) > 1 and cell else cell)
    return names


def read_cell(rows: Sequence[Sequence[str]], row: str, column: str) -> str:
    """The cell of a row, which is named by its first cell."""
    if column not in rows[0]:
        raise LookupError(f"RESULTS.md: there is no column {column!r} in {rows[0]}")
    for cells in rows[1:]:
        if cells[0] == row:
            return cells[list(rows[0]).index(column)]
    raise LookupError(f"RESULTS.md: there is no row {row!r} in the table {rows[0]}")


def show_table(rows: Sequence[Sequence[str]], columns: Sequence[str] | None = None, without: str | None = None) -> str:
    """Markdown of a table: all of it, or its first column and the columns that are named.

    Args:
      rows: of a table, the first one being the header.
      columns: the names of the columns; default: all.
      without: the beginning of the row that is left out.
    """
    header = list(rows[0])
    for column in columns or ():
        if column not in header:
            raise LookupError(f"RESULTS.md: there is no column {column!r} in {header}")
    columns_shown = [0, *(header.index(column) for column in columns)] if columns else range(len(header))
    if without and not any(row[0].startswith(without) for row in rows):
        raise LookupError(f"RESULTS.md: there is no row {without!r} in the table {header}")
    selected = [[row[k] for k in columns_shown] for row in rows if not (without and row[0].startswith(without))]
    # Targets are for those who change the code.
    table = [[re.sub(r" \(target [^)]*\)", "", cell) for cell in row] for row in selected]
    return make_table([row for row in table if any(row[1:])])


def make_table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown of a table with numbers in all columns but the first."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|---|{'--:|' * (len(rows[0]) - 1)}", *lines[1:]])


def draw_bars(numbers: dict[str, dict[str, float]], pipelines: dict[str, str]) -> str:
    """HTML with a panel of bars for each pipeline, with the colours of the theme. Panels share a line where the page is
    wide, and stand below each other on a phone.
    """
    panels = []
    for pipeline, title in pipelines.items():
        longest = max(times[pipeline] for times in numbers.values())
        bars = []
        for library, times in numbers.items():
            is_ours = library == "jaxdali"
            color = "var(--color-brand-primary)" if is_ours else "var(--color-foreground-border)"
            weight = "600" if is_ours else "400"
            shown = f"{times[pipeline]:.1f}" if times[pipeline] >= 10 else f"{times[pipeline]:.2f}"
            bars.append(
                f'<span style="text-align:right;font-weight:{weight}">{html.escape(library)}</span>'
                f'<span style="display:flex;align-items:center;gap:0.3rem"><span style="background:{color};'
                f'height:0.7rem;border-radius:2px;width:{72 * times[pipeline] / longest:.1f}%"></span>'
                f'<span style="font-weight:{weight}">{shown}</span></span>'
            )
        panels.append(
            f'<div><div style="font-weight:600;margin-bottom:0.2rem">{html.escape(title)}</div>'
            '<div style="display:grid;grid-template-columns:4.5rem 1fr;column-gap:0.5rem;line-height:1.45">'
            f"{''.join(bars)}</div></div>"
        )
    label = "Bars: CPU milliseconds per image of each library, less is better. The numbers are in the table of the page Performance."
    return (
        f'<div role="img" aria-label="{label}" style="display:grid;gap:1.1rem 1.5rem;font-size:0.8rem;margin:1rem 0;'
        'grid-template-columns:repeat(auto-fill,minmax(15rem,1fr))">'
        f"{''.join(panels)}</div>"
    )


def version() -> str:
    """The version of the package, from its source."""
    return re.findall(r'__version__ = "(.+)"', (ROOT / "jaxdali" / "_version.py").read_text())[0]


def citation() -> str:
    """A block of BibTeX."""
    return f"""```bibtex
@software{{jaxdali,
  author = {{{{The jaxdali developers}}}},
  title = {{jaxdali: input pipelines for JAX with the API of NVIDIA DALI}},
  version = {{{version()}}},
  year = {{2026}},
}}
```"""


def extras_table() -> str:
    """The extras of pyproject.toml, with the packages that each installs. Two columns fit a phone."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if extras.keys() != EXTRAS.keys():
        raise LookupError(f"EXTRAS and pyproject.toml differ in {sorted(extras.keys() ^ EXTRAS.keys())}")
    lines = ["| extra | for (packages) |", "|---|---|"]
    for name, purpose in EXTRAS.items():
        packages = ", ".join(re.split(r"[<>=~!]", package)[0] for package in extras[name])
        lines.append(f"| `{name}` | {purpose} ({packages}) |")
    return "\n".join(lines)


def versions_table() -> str:
    """The versions that pyproject.toml admits, and those that were tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", package).groups() for package in project["dependencies"])
    rows = [
        ["", "supported", "tested"],
        [
            "Python",
            f"{project['requires-python'].removeprefix('>=')} or newer",
            "3.11, 3.12, 3.13, 3.14, 3.14t (free-threaded)",
        ],
        ["jax, jaxlib", f"{bounds['jax']} or newer", "0.9.0, 0.10, 0.12; on GPUs 0.11.2"],
        ["NumPy", f"{bounds['numpy']} or newer", "2.4, 2.5"],
        [
            "system",
            "Linux with glibc 2.28 or newer; x86-64 with AVX (jaxlib needs it; after 0.10 AVX2), aarch64",
            "x86-64; aarch64 in part, under emulation",
        ],
        ["GPU", "NVIDIA, compute capability 8.0 or newer, CUDA 12 or newer", "one H100, one H200; CUDA 13"],
    ]
    return "\n".join([f"| {' | '.join(rows[0])} |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows[1:])])
