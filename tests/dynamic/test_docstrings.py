"""Docstrings of functions of values: they document all arguments, use the words of values, and their examples run."""

import inspect
import pathlib
import re
import types as kinds
import wave

import containers as c
import jax
import numpy as np
import photos_of_values
import pytest
import videos

import jaxdali.dynamic as jd
import jaxdali.experimental.dynamic as nd
from jaxdali import tfrecord, types
from jaxdali.dynamic import _docstrings
from jaxdali.fn.__main__ import operators

MODULES = {"jd": jd, "nd": nd}
OPERATORS = {name: f for name, f in operators().items() if not f.__module__.startswith("jaxdali.fn.readers.")}


def functions(module: kinds.ModuleType, prefix: str = "") -> dict[str, kinds.FunctionType]:
    """The functions that are made from those of `fn`, by name."""
    functions_by_name = {}
    for name in dir(module):
        x = getattr(module, name)
        if inspect.ismodule(x) and x.__name__ == f"{module.__name__}.{name}":
            functions_by_name |= functions(x, f"{prefix}{name}.")
        elif inspect.isfunction(x) and prefix + name in OPERATORS:
            functions_by_name[prefix + name] = x
    return functions_by_name


FUNCTIONS = {m: functions(module) for m, module in MODULES.items()}
# Names of functions that draw.
DRAWING = re.compile(r"random|noise|jitter|batch_permutation|uniform|coin_flip|normal_distribution")


def documented(text: str) -> list[str]:
    entries = text.partition("Args:\n")[2].partition("\n\n")[0]
    return [
        n.strip(" *")
        for names in re.findall(r"^  (\*{0,2}\w[\w, *]*):", entries, re.MULTILINE)
        for n in names.split(",")
    ]


@pytest.mark.parametrize("module", MODULES)
def test_arguments(module):
    assert len(FUNCTIONS[module]) > 140, "too few functions of values: most operators of jaxdali.fn must have one"
    for name, function in FUNCTIONS[module].items():
        parameters = [*inspect.signature(function).parameters]
        assert sorted(documented(function.__doc__ or "")) == sorted(parameters), name
        assert not {"name", "seed", "preserve", "bytes_per_sample_hint"} & {*parameters}, name
        draws = {"key", "rng"} if DRAWING.search(name) else set()
        random_arguments = {"key", "rng", "batch_size"} & {*parameters}
        assert random_arguments == {"batch_size", *draws} | ({"key"} if name == "get_property" else set()), name


@pytest.mark.parametrize("module", MODULES)
def test_words(module):
    other_module = "nd" if module == "jd" else "jd"
    words = re.compile(
        rf"\b(fn|{other_module}(?=\.)|[Nn]odes?|DataNodes?|[pP]ipelines?|host values?|epochs?|shards?|readers?|iterators?|first batch)\b"
    )
    for name, function in FUNCTIONS[module].items():
        text = (function.__doc__ or "").replace("It is known in pipelines only.", "")
        assert words.search(text) is None, (name, words.search(text))


def test_replaced_phrases_exist():
    texts = "\n".join(f.__doc__ or "" for f in operators().values()).replace("fn.", "jd.")
    unbroken = " ".join(texts.split())
    unused = [phrase for phrase, _ in _docstrings._WORDS if " ".join(phrase.split()) not in unbroken]
    assert not unused, "phrases of _docstrings._WORDS that no docstring of jaxdali.fn has any more: change them, too"


def test_functions_without_random_numbers_refuse_keys():
    key = jax.random.key(0)
    image = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(
        TypeError, match=r"flip: argument 'key' is for functions that draw random numbers.*test_docstrings\.py"
    ):
        jd.flip(image, key=key)
    with pytest.raises(TypeError, match=r"transforms\.scale: argument 'rng' is for functions that draw"):
        jd.transforms.scale(scale=[2, 2], rng=jd.random.RNG(1))
    assert len(jd.get_property(image, key="layout")) == 2


# --- examples ---------------------------------------------------------------------------------------------------------


def example(text: str) -> str:
    lines = text.partition("Example:\n")[2].splitlines()
    return "\n".join(line.strip()[4:] for line in lines if line.strip()[:4] in (">>> ", "... "))


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """The variables and files that examples use."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "images").mkdir()
    jpegs = [photos_of_values.photo(320, 300 + 4 * i, i) for i in range(8)]
    for i, data in enumerate(jpegs):
        (folder / "images" / f"{i}.jpg").write_bytes(data)
    np.save(folder / "a.npy", np.zeros(3))
    with wave.open(str(folder / "a.wav"), "wb") as f:
        f.setparams((1, 2, 8000, 800, "NONE", ""))
        f.writeframes(np.arange(800, dtype=np.int16).tobytes())
    N, rng = 8, np.random.default_rng(1)
    tensor = c.field(1, 1) + c.field(2, c.field(2, c.field(1, 3))) + c.field(4, bytes(12))  # a TensorProto of 3 floats
    images = [rng.integers(0, 256, (260 + i, 280, 3), np.uint8) for i in range(N)]
    boxes = [np.float32([[0.1, 0.2, 0.5, 0.6], [0.3, 0.3, 0.9, 0.8]])] * N
    audio = [rng.standard_normal(16000).astype(np.float32) for _ in range(N)]
    return {
        "folder": folder,
        "layouts": {"images": "HWC", "video": "FHWC", "masks": "HWC", "raw": "HW"},
        "images": images,
        "jpegs": jpegs,
        "boxes": boxes,
        "labels": [np.int32([1, 3])] * N,
        "masks": [rng.integers(0, 2, (40, 50, 1)).astype(np.uint8) for _ in range(N)],
        "mask": [np.zeros((4, 4), np.uint8)] * N,
        "mirror": np.arange(N, dtype=np.int32) % 2,
        "angle": np.linspace(-10, 10, N).astype(np.float32),
        "x": np.full(N, 0.5, np.float32),
        "y": np.full(N, 0.5, np.float32),
        "raw": [rng.integers(0, 256, (16, 20), np.uint8)] * N,
        "video": [rng.integers(0, 256, (16, 24, 24, 3), np.uint8)] * N,
        "audio": audio,
        "signals": audio,
        "spectrograms": [rng.random((20, 30 + i), np.float32) for i in range(N)],
        "mel": [rng.random((80, 30), np.float32)] * N,
        "landmarks": [rng.random((5, 2), np.float32)] * N,
        "corners": [rng.random((4, 2), np.float32)] * N,
        "anchors": (rng.random((10, 2), np.float32).repeat(2, 1) * np.float32(0.5) + np.float32([0, 0, 0.4, 0.4]))
        .ravel()
        .tolist(),
        "height": np.arange(N, dtype=np.int32),
        "width": np.arange(N, dtype=np.int32),
        "mapx": [np.zeros((240, 260), np.float32)] * N,
        "mapy": [np.zeros((240, 260), np.float32)] * N,
        "ids": [np.int32([1])] * N,
        "polygons": [np.int32([[1, 0, 3], [2, 3, 6]])] * N,
        "vertices": [rng.random((6, 2), np.float32)] * N,
        "start": [np.int32([10, 20, 0])] * N,
        "end": [np.int32([250, 260, 3])] * N,
        "file_bytes": [np.zeros(8, np.uint8)] * N,
        "records": [c.example({"image": [x], "label": [1], "latents": [tensor]}) for x in jpegs],
    }


UNIFORM = {"images": [np.zeros((240, 260, 3), np.uint8)] * 8}
SPECIAL = {  # replaces some of `values` for an operator
    "batch_permutation": UNIFORM,
    "random.key": {"images": [np.zeros((24, 26, 3), np.float32)] * 8},
    "squeeze": {"images": [np.zeros((4, 5, 1), np.uint8)] * 8},
    "segmentation.random_object_bbox": {"labels": [np.eye(8, dtype=np.int32)] * 8},
    "lookup_table": {"labels": [np.int32([3, 7, 1])] * 8},
    "one_hot": {"labels": np.arange(8, dtype=np.int32)},
    "experimental.remap": UNIFORM,
    **{
        f"noise.{kind}": {"images": [np.zeros((24, 26, 3), np.uint8)] * 8}
        for kind in ("gaussian", "salt_and_pepper", "shot")
    },
}
FILES = {
    "decoders.audio": "a.wav",
    "audio_decoder": "a.wav",
    "decoders.video": "a.mp4",
    "experimental.decoders.video": "a.mp4",
    "decoders.numpy": "a.npy",
    "io.file.read": "images/0.jpg",
}
PACKAGES = {"dl_tensor_python_function": "torch", "decoders.audio": "soundfile", "audio_decoder": "soundfile"}


CODE = {m: {n: example(f.__doc__ or "") for n, f in by_name.items()} for m, by_name in FUNCTIONS.items()}
# Examples of `nd` that equal those of `jd` are not run again.
SAME = [n for n, code in CODE["nd"].items() if code.replace("nd.", "jd.") == CODE["jd"][n]]


@pytest.mark.parametrize(
    ("module", "name"),
    [(m, n) for m, by_name in CODE.items() for n in by_name if by_name[n] and (m == "jd" or n not in SAME)],
)
def test_examples(module, name, values, monkeypatch):
    code = CODE[module][name]
    monkeypatch.chdir(values["folder"])
    space = {n: x for n, x in (values | SPECIAL.get(name, {})).items() if n not in ("folder", "layouts")}
    for n, x in space.items():
        if n not in ("anchors", "jpegs"):
            layout = values["layouts"].get(n)
            space[n] = MODULES[module].batch(x, layout=layout if layout and len(layout) == np.ndim(x[0]) else None)
    if (file := FILES.get(name)) is not None:
        if file == "a.mp4":
            videos.write(file, 120, "mpeg4", size=(32, 32))
        space |= {
            "names": [file] * 8,
            "paths": [np.frombuffer(file.encode(), np.uint8)] * 8,
            "files": [pathlib.Path(file).read_bytes()] * 8,
        }
    if (package := PACKAGES.get(name)) is not None:
        space[package] = pytest.importorskip(package)
    if name.endswith("inflate"):
        data = pytest.importorskip("lz4.block").compress(bytes(480 * 640 * 3), store_size=False)
        space |= {"compressed": [data + data] * 8, "sizes": [np.int32([len(data)] * 2)] * 8}
    space |= {
        module: MODULES[module],
        "key": jax.random.key(3),
        "jax": jax,
        "np": np,
        "types": types,
        "tfrecord": tfrecord,
        "pathlib": pathlib,
    }
    exec(code, space)  # raises if the example fails
