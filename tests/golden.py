"""Runs cases recorded from NVIDIA DALI (tests/data/golden) through jaxdali; the manifest's format is that of `Case`
below.
"""

import dataclasses
import fnmatch
import functools
import importlib.util
import json
import re
import zlib
from typing import Any

import numpy as np
import places

import jaxdali
from jaxdali import fn, math, types

ROOT = places.DATA / "golden"
_SOUND = (".flac", ".mp3", ".ogg", ".opus", ".wav")
IMAGES = sorted(p for p in (ROOT / "files").iterdir() if p.suffix not in _SOUND)


@dataclasses.dataclass(frozen=True)
class Case:
    """One pipeline and what DALI returned.

    Attributes:
      inputs: each with name, kind ("array" or "encoded"), samples (references to data), layout.
      fn, args, kwargs: the operator, names of its positional inputs, its arguments; or expr: a Python expression.
      outputs: each with samples, dtype, layout, shapes. check: "values", "shape", "shape_range" or "raises".
      tol: max_abs + max_rel * |expected| for all but the fraction `frac` of the elements; mean_abs and hard, limits of
        mean and maximum.
    """

    id: str
    op: str
    inputs: list
    check: str
    fn: str = ""
    expr: str = ""
    args: tuple = ()
    kwargs: dict = dataclasses.field(default_factory=dict)
    outputs: list = dataclasses.field(default_factory=list)
    tol: dict = dataclasses.field(default_factory=dict)
    seed: int = 0


@functools.cache
def _manifest() -> tuple[Case, ...]:
    names = {f.name for f in dataclasses.fields(Case)}
    cases = json.loads((ROOT / "manifest.json").read_text())["cases"]
    return tuple(Case(**{k: v for k, v in c.items() if k in names}) for c in cases)


def cases(pattern: str) -> list[Case]:
    """The cases of the operators that match, e.g. ``"arithmetic.*"``."""
    return [c for c in _manifest() if fnmatch.fnmatch(c.op, pattern)]


def operators() -> list[str]:
    """The cases of operators that `fn` has."""

    def exists(function: str) -> bool:
        try:
            return bool(functools.reduce(getattr, function.split("."), fn))
        except AttributeError:
            return False

    missing = {
        c.op for c in _manifest() for f in ([c.fn] if c.fn else re.findall(r"\bfn\.([\w.]+)", c.expr)) if not exists(f)
    }
    return sorted({c.op for c in _manifest()} - missing)


@functools.cache
def _file(name: str):
    return np.load(ROOT / name)


def load(reference: str) -> np.ndarray:
    """The data of a reference: ``file.npz:key``, or a file's bytes."""
    if ".npz:" not in reference:
        return np.fromfile(ROOT / reference, np.uint8)
    name, key = reference.rsplit(":", 1)
    return _file(name)[key]


def run(case: Case, on_device: bool = False) -> list:
    """Runs a case, every other one in a batch with room for one sample more; returns its outputs, a TensorListCPU each."""
    size = max([len(x["samples"]) for x in case.inputs] or [1])
    room = zlib.crc32(case.id.encode()) % 2 if case.inputs else 0

    @jaxdali.pipeline_def(batch_size=size + room, num_threads=2, device_id=None, seed=case.seed)
    def pipeline():
        nodes = {}
        for x in case.inputs:
            source = functools.partial(list, [load(s) for s in x["samples"]])
            node: Any = fn.external_source(source=source, batch=True, layout=x.get("layout") or None)
            nodes[x["name"]] = node.gpu() if on_device else node

        def value(v):
            if isinstance(v, dict):
                return getattr(types, v["enum"]) if "enum" in v else nodes[v["input"]]
            return [value(x) for x in v] if isinstance(v, list) else v

        if case.expr:
            return eval(case.expr, {"fn": fn, "types": types, "math": math, "np": np}, nodes)
        function: Any = functools.reduce(getattr, case.fn.split("."), fn)
        return function(*(nodes[a] for a in case.args), **{k: value(v) for k, v in case.kwargs.items()})

    p: Any = pipeline(exec_pipelined=False, exec_async=False)
    return [x.as_cpu() for x in p.run()]


def check(case: Case, on_device: bool = False) -> str:
    """Runs a case and compares; returns what is wrong, ``""`` when nothing is."""
    try:
        outputs = run(case, on_device)
    except Exception as e:  # any error is a result here
        return "" if case.check == "raises" else f"{case.id}: {type(e).__name__}: {e}"
    return compare(case, outputs)


# Where results differ from DALI's on purpose: what is allowed instead, and why. By case, or by case, output and sample.
DIFFERENCES = {
    # 5 % of the points lie on a border of two pixels, exactly; DALI adds up 32-bit coordinates along a row and rounds
    # them either way.
    "warp_affine_d006": {"frac": 0.06},
    # A WAV file of doubles as INT32: DALI does not scale it, and gives zeros.
    "decoders_audio_d009_0_1": {"frac": 1.0},
}


def compare(case: Case, outputs: list) -> str:
    """Describes the differences of the outputs of a case; ``""`` if there are none."""
    if case.check == "raises":
        return f"{case.id}: no exception"
    wrong = [] if len(outputs) == len(case.outputs) else [f"{len(outputs)} outputs, expected {len(case.outputs)}"]
    for i, (output, expected) in enumerate(zip(outputs, case.outputs, strict=False)):
        if expected.get("layout") is not None and output.layout() != expected["layout"]:
            wrong.append(f"output {i}: layout {output.layout()!r}, expected {expected['layout']!r}")
        if len(output) != len(expected["shapes"]):
            wrong.append(f"output {i}: {len(output)} samples, expected {len(expected['shapes'])}")
        for k, (x, shape) in enumerate(zip(map(np.array, output), expected["shapes"], strict=False)):
            text = _shape_differs(x, expected["dtype"], shape, case.check == "shape_range")
            if not text and case.check == "values":
                allowed = DIFFERENCES.get(case.id) or DIFFERENCES.get(f"{case.id}_{i}_{k}", {})
                text = _differs(x, load(expected["samples"][k]), **{**case.tol, **allowed})
            if text:
                wrong.append(f"output {i}, sample {k}: {text}")
    return f"{case.id}: {'; '.join(wrong)}" if wrong else ""


def failures(pattern: str, on_device: bool = False, every: int = 1) -> list[str]:
    """Describes the differences in the cases of the operators that match.

    Args:
      pattern: of the operators' names.
      on_device: the inputs are moved to the accelerator first, so that operators with a host version run in a program.
      every: run only every n-th case.
    """
    selected = cases(pattern)[::every]
    assert selected, pattern
    wrong = [text for case in selected if (text := check(case, on_device))]
    if importlib.util.find_spec("imagecodecs") is None:  # an optional package, for some files of 16 bits
        wrong = [text for text in wrong if "pip install jaxdali[formats]" not in text]
    if importlib.util.find_spec("soundfile") is None:
        wrong = [text for text in wrong if "jaxdali[audio]" not in text]
    return wrong


def _shape_differs(x: np.ndarray, dtype: str, shape: list[int], only_rank: bool) -> str:
    if x.dtype.name != dtype:
        return f"dtype {x.dtype}, expected {dtype}"
    if x.ndim != len(shape) or not (only_rank or list(x.shape) == shape):
        return f"shape {x.shape}, expected {tuple(shape)}"
    return ""


def _differs(
    got: np.ndarray, want: np.ndarray, max_abs=0.0, max_rel=0.0, frac=0.0, mean_abs=np.inf, hard=np.inf
) -> str:
    if not want.size:
        return ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf, 0 * inf
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        distance = np.where(np.isnan(distance), np.inf, distance)
        beyond = float((distance > max_abs + max_rel * np.abs(b)).mean())
    if beyond > frac or distance.mean() > mean_abs or distance.max() > hard:
        distances = f"mean {distance.mean():.4g}, max {distance.max():.4g}"
        return f"{beyond:.4%} of the elements differ by more than {max_abs} (allowed {frac:.4%}); {distances}"
    return ""
