"""Figures of the site's pages, by the names that pages write in double braces. They are read from
tests/benchmarks/RESULTS.md; a section, a row or a column that is missing there is an error.

install.md is also read in the repository, so it has its tables in plain Markdown. Run as a program, this prints them,
and tests/test_figures.py compares. Their packages and bounds are those of pyproject.toml; the purposes of extras and
the tested versions are written here.
"""

import functools
import html
import pathlib
import re
import runpy
import tomllib
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
BENCHMARKS = ROOT / "tests" / "benchmarks"
WARM = "with 3.3 us an image (`--serial 3.3`)"  # the column of efficiencies whose caches stay warm

# The purpose of each extra of pyproject.toml. One that is missing here, or gone there, is an error.
EXTRAS = {
    "array_record": "`readers.array_record`: files that are compressed by zstd; Brotli and Snappy need pyarrow",
    "audio": "`decoders.audio`, `readers.nemo_asr`",
    "benchmark": "a progress bar of `python -m jaxdali.benchmark`",
    "coco": "`readers.coco`: faster annotations, and pixelwise masks",
    "containers": "`readers.caffe`, `readers.caffe2`: LMDB databases",
    "cuda13": "JAX with CUDA 13, and the CUDA kernels as a package of their own",
    "examples": "what most examples need, with Flax and optax; each says in its first lines what else",
    "flax": "the examples that train",
    "formats": "images: JPEG XL, AVIF, HEIC; TIFF of floats and of many bands; TIFF, PNM and JPEG 2000 of 16 bits",
    "grain": "programs that load with Grain: `jaxdali.plugin.grain`",
    "lz4": "`decoders.inflate`",
    "pack": "`python -m jaxdali.pack --format array_record`",
    "parquet": "`readers.parquet`",
    "ray": "batches that Ray's workers make: `jaxdali.ray`",
    "remote": "URLs; each kind needs a package of its own, such as s3fs, gcsfs or huggingface_hub",
    "torch": "iterators for PyTorch: `jaxdali.plugin.pytorch`",
    "video": "`decoders.video`, `readers.video`, `readers.video_resize`",
}


@functools.cache
def substitutions() -> dict[str, str]:
    """Markdown by name: tables, and single figures."""
    speed = runpy.run_path(str(BENCHMARKS / "draw_speed.py"))
    values = {
        "version": version(),
        "python": python(),
        "citation": citation(),
        "speed_bars": draw_bars(speed["numbers"](), speed["PIPELINES"]),
        "speed_table": speed["table"](speed["numbers"]()),
    }
    return values | cpu_figures() | gpu_figures()


def cpu_figures() -> dict[str, str]:
    """Figures of the part "CPUs" of RESULTS.md."""
    cores = read_table("Many cores, simulated", "cores")
    locks = read_table("Many cores, simulated", "without it")
    warm = read_table("Many cores, simulated", WARM)
    new_sizes = read_table("Functions of jaxdali.dynamic", "CPU ms, once")
    pipelines = read_table("Pipelines, beside other libraries", "Xeon")
    targets = read_table("Pipelines, beside other libraries", "page faults per batch")
    memory = [
        [row[0], *read_cell(targets, row[0], "MB at most, DALI's").split(", ")]
        for row in targets[1:]
        if row[0] in ("decode", "resize", "rotate", "train", "eval")
    ]
    return {
        "xeon_table": show_table(pipelines, ["decode", "resize", "rotate", "train", "eval"]),
        "cores_table": show_table(cores, ["images/s", "efficiency"]),
        "images_one_process": read_cell(cores, "128", "images/s"),
        "images_four_processes": read_cell(cores, "128, four processes of 32", "images/s"),
        "warm_64": read_cell(warm, "64", WARM),
        "warm_128": read_cell(warm, "128", WARM),
        "lock_table": show_table(locks, ["efficiency with the lock", "without it"]),
        "memory_table": make_table([["peak MB", "jaxdali", "DALI 2.4"], *memory]),
        "start_table": show_table(
            read_table("Stalls", "import of JAX"),
            ["import of JAX", "of jaxdali", "until the first batch", "in all"],
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
        "functions_table": show_table(read_table("Functions of jaxdali.dynamic", "ratio"), ["time", "ratio"]),
        "new_size_one": read_cell(new_sizes, "`jd.decoders.image`", "CPU ms, once"),
        "new_size_three": read_cell(
            new_sizes,
            "decoding, `random_resized_crop` to 96x96 and normalising in one `jd.jit`, a key for each sample",
            "CPU ms, once",
        ),
    }


def gpu_figures() -> dict[str, str]:
    """Figures of the part "GPUs" of RESULTS.md."""
    images = read_table("Images per second", "H100")
    nvjpeg = read_table("Images per second", "times nvJPEG")  # below the table of images per second
    training = read_table("Images per second", "kernels")
    host = read_table("The host's part, on CPU devices that play GPUs", "one GPU")
    return {
        "gpu_images_table": show_table(images, ["H100", "H200"], without="ms of "),
        "gpu_decode_table": show_table(nvjpeg),
        "gpu_training_table": show_table(training, training[0][1:-1]),
        "gpu_transfer_times_nvjpeg": read_cell(nvjpeg, "with the transfer", "times nvJPEG"),
        "gpu_kernel_ms": read_cell(images, "ms of all kernels of a batch of `train`", "H200"),
        "gpu_host_table": show_table(host),
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
            shown = f"{times[pipeline]:.1f}" if times[pipeline] >= 10 else f"{times[pipeline]:.2f}"
            bars.append(
                f'<div class="{"ours" if library == "jaxdali" else "other"}"><span>{html.escape(library)}</span>'
                f'<i style="width:{48 * times[pipeline] / longest:.1f}%"></i>{shown}</div>'
            )
        panels.append(f"<div><strong>{html.escape(title)}</strong>{''.join(bars)}</div>")
    label = "Bars: CPU milliseconds per image of each library, less is better. The numbers are in the table of the page Performance."
    return f'<div class="bars" role="img" aria-label="{label}">{"".join(panels)}</div>'


def version() -> str:
    """The version of the package, from its source."""
    return re.findall(r'__version__ = "(.+)"', (ROOT / "jaxdali" / "_version.py").read_text())[0]


def python() -> str:
    """The oldest version of Python that pyproject.toml admits."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")


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
    bounds: dict[str, str] = dict(package.split(">=") for package in project["dependencies"])
    rows = [
        ["", "supported", "tested"],
        [
            "Python",
            f"{python()} or newer",
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


if __name__ == "__main__":
    print(f"{extras_table()}\n\n{versions_table()}")
