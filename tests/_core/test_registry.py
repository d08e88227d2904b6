"""Rules that hold for every public function, and for every kernel."""

import contextlib
import inspect
import re
import sys
import types

import jax
import numpy as np
import places
import pytest
from data_sets import tfds_arguments

import jaxdali
from jaxdali import Pipeline, _cpu, fn, tfrecord
from jaxdali import types as dali_types
from jaxdali._core import ffi as _ffi
from jaxdali._core.arguments import declared
from jaxdali._core.calls import functions as CALLS
from jaxdali._core.declaration import Argument
from jaxdali._core.names import members


def functions(module: types.ModuleType, prefix: str = "") -> dict:
    """The operators of a module and its public submodules, by dotted name."""
    operators = {}
    for name, x in members(module).items():
        if inspect.ismodule(x) and x.__name__.startswith(f"{module.__name__}."):
            operators |= functions(x, f"{prefix}{name}.")
        # A package is an index of operators; a module also holds helpers, which don't take the name of a node.
        elif inspect.isfunction(x) and (hasattr(module, "__path__") or "name" in inspect.signature(x).parameters):
            operators[prefix + name] = x
    return operators


FN = functions(fn)
OTHER_NAMES = ("Deprecated name of", "Another name of")  # so their docstrings begin


def test_index():
    assert {"cast", "shapes", "resize", "readers.file", "decoders.image"} <= set(FN)


@pytest.mark.parametrize("name", FN)
def test_signature(name):
    """Inputs by position, everything else by name; nothing is passed through; defaults are immutable."""
    for p in inspect.signature(FN[name]).parameters.values():
        assert p.kind != p.VAR_KEYWORD, p
        # an operator's inputs come first and have no default, or None where the input may be left out
        assert p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) or p.default in (p.empty, None), p
        assert p.default is p.empty or p.default is None or isinstance(p.default, (bool, int, float, str, tuple)), p


@pytest.mark.parametrize("name", FN)
def test_docstring(name):
    """Every argument is documented, under its name."""
    text = inspect.getdoc(FN[name]) or ""
    assert re.match(r"\S.*\.\n", text + "\n"), "a one-line summary that ends with a full stop"
    parameters = inspect.signature(FN[name]).parameters
    assert "Args:" in text or not parameters
    missing = [p for p in parameters if not re.search(rf"^ .*\b{p}\b.*", text, re.M)]
    assert not missing


def test_files_can_call_every_function():
    """Files can call these functions and Python's operators on DataNodes, and nothing else."""
    renamed = {name for name, f in FN.items() if (f.__doc__ or "").startswith(OTHER_NAMES)}
    assert {name: f for name, f in CALLS.items() if name in FN} == {
        name: f for name, f in FN.items() if name not in renamed
    }
    # Other tests declare operators too.
    recorded = {name for name, f in CALLS.items() if f.__module__.startswith("jaxdali.")}
    language = {
        "arithmetic",
        "subscript",
        "copy_to",
        "array",
        "_conditional.merge",
        "_conditional.predicate",
        "_conditional.logical",
    }
    language |= {"_conditional.split", "_conditional.of_both"}
    beyond = recorded - FN.keys() - {"torch_python_function"}  # where a test of the plugin was before
    assert {name for name in beyond if not name.startswith("auto_aug.")} == language


DECLARED = {n: f for n, f in FN.items() if not (f.__doc__ or "").startswith(OTHER_NAMES)}
# Anything that stands for a stream in any framework, for a data set, or goes by its items or their keys.
UNTYPED = {
    "external_source.cuda_stream",
    *(f"readers.source.{argument}" for argument in ("dataset", "layout", "shape", "lengths")),
}


def example(a: Argument):
    """A value that the argument takes."""
    for x in (
        a.range.inside,
        a.range.inside + 1,
        "text",
        True,
        dali_types.FLOAT,
        dali_types.INTERP_LINEAR,
        dali_types.RGB,
        0,
        ".",
        len,
    ):
        for form in ([x], [[x] * n for n in (a.lengths or (1,))])[a.many]:
            with contextlib.suppress(TypeError, ValueError):
                a.convert(form)
                return form
    names = re.findall(r"'([^']*)'", a.expected)
    assert names, a
    return names[0]


def inputs_of(name: str) -> list:
    """Nodes for the required inputs of an operator. They suffice for a definition."""
    arguments = declared[name]()
    count = sum(a.is_input and a.required for a in arguments.values())
    return [fn.external_source(source=lambda: [np.zeros((4, 4, 3), np.uint8)], layout="HWC") for _ in range(count)]


def needed(name: str) -> dict:
    """The arguments that the operator requires besides its inputs."""
    required = {
        "audio_resample": {"scale": 2.0},
        "bbox_paste": {"ratio": 2.0},
        "box_encoder": {"anchors": [0, 0, 1, 1]},
        "color_space_conversion": {"image_type": dali_types.RGB, "output_type": dali_types.BGR},
        "constant": {"idata": 1},
        "decoders.image_slice": {"start": 0},
        "fast_resize_crop_mirror": {"size": 4},
        "parse_example": {"features": {"label": tfrecord.FixedLenFeature([], tfrecord.int64)}},
        "readers.coco": {"file_root": ".", "annotations_file": "."},
        "readers.file": {"file_root": "."},
        "readers.numpy": {"file_root": "."},
        "readers.sequence": {"file_root": ".", "sequence_length": 1},
        "readers.source": {"dataset": [0, 1]},
        "readers.tfds": tfds_arguments(),
        "readers.tfrecord": {"features": {"label": tfrecord.FixedLenFeature([], tfrecord.int64, 0)}},
        "experimental.readers.video": {"filenames": "a"},
        "readers.video": {"filenames": "a"},
        "readers.video_resize": {"filenames": "a", "size": 4},
        "reinterpret": {"shape": [48]},
        "reshape": {"shape": [48]},
        "resize_crop_mirror": {"size": 4},
        "resize": {"size": 4},
        "roi_random_crop": {"crop_shape": 1, "roi_start": 0, "roi_end": 1},
        "tensor_resize": {"sizes": 4},
    }
    arguments = required.get(name, {})
    return {
        n: example(a) for n, a in declared[name]().items() if a.required and not a.is_input and n not in arguments
    } | arguments


def test_every_operator_is_declared():
    assert set(DECLARED) <= set(declared)


@pytest.mark.parametrize("name", DECLARED)
def test_none_is_not_given(name):
    """All defaults at once, of every optional argument; the executor's hints are accepted."""
    optional = {n: None for n, a in declared[name]().items() if not a.required and not a.is_input}
    assert {"bytes_per_sample_hint", "preserve", "seed", "name", "device"} <= set(optional)
    with Pipeline(batch_size=1, num_threads=1):
        FN[name](*inputs_of(name), **{**optional, **needed(name)})
        FN[name](*inputs_of(name), **{**needed(name), "bytes_per_sample_hint": [8], "preserve": True, "name": "mine"})
        # If an operator draws no random numbers, its seed is only a hint, about which DALI warns.
        draws = inspect.signature(FN[name]).parameters["seed"].default is not None
        with (
            contextlib.nullcontext() if draws else pytest.warns(DeprecationWarning, match=f"{name}: the argument seed")
        ):
            FN[name](*inputs_of(name), **{**needed(name), "seed": 3})


@pytest.mark.parametrize("name", DECLARED)
def test_a_wrong_type_is_named(name):
    with Pipeline(batch_size=1, num_threads=1):
        for n, a in declared[name]().items():
            if a.is_input or f"{name}.{n}" in UNTYPED:
                continue
            assert a.kinds, f"{n} is of no type that is known"
            with pytest.raises(
                TypeError, match=rf"^{name}: argument {n} must be .*, got .* \(called at .*test_registry"
            ):
                FN[name](*inputs_of(name), **{**needed(name), n: {"no": "value"}})
            if not a.per_sample:
                with pytest.raises(
                    TypeError, match=rf"^{name}: argument {n} must be .*the same for all samples, got a DataNode"
                ):
                    FN[name](*inputs_of(name), **{**needed(name), n: fn.random.uniform()})
        with pytest.raises(TypeError, match=rf"^{name}: got an unexpected argument 'nonsense'"):
            FN[name](*inputs_of(name), nonsense=1)


@pytest.mark.parametrize("name", DECLARED)
def test_a_list_of_inputs_gives_a_list(name):
    with Pipeline(batch_size=1, num_threads=1):
        first, second = inputs_of(name), inputs_of(name)
        one = FN[name](*first, **needed(name))
        if first:
            both = FN[name](*map(list, zip(first, second, strict=True)), **needed(name))
            assert [type(x) for x in both] == ([list] * len(one) if isinstance(one, list) else [type(one)] * 2)


def test_public_names():
    for name in ("pipeline_def", "Pipeline", "DataNode", "fn", "types", "math", "show_config"):
        assert hasattr(jaxdali, name)


def test_kernels_are_registered():
    kernels = re.findall(r"^JAXDALI_KERNEL(?:_CUDA)?\((\w+)\)", (places.ROOT / "ffi" / "ops.def").read_text(), re.M)
    assert kernels
    assert set(_cpu.targets()) == {f"jaxdali_{k}" for k in kernels}
    for kernel in kernels:
        call = jax.ffi.ffi_call(f"jaxdali_{kernel}", jax.ShapeDtypeStruct((1,), "uint8"))
        text = jax.jit(call).lower().as_text()
        assert f"jaxdali_{kernel}" in text


def test_cuda_module():
    """If it was built, it can be imported with or without a GPU, and has all kernels."""
    kernels = set(re.findall(r"^JAXDALI_KERNEL_CUDA\((\w+)\)", (places.ROOT / "ffi" / "ops.def").read_text(), re.M))
    assert _ffi.CUDA.split(":")[0] in ("loaded", "not built", "not used")
    assert _ffi.CUDA_KERNELS in (kernels, set())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("uniform", "random.uniform"),
        ("file_reader", "readers.file"),
        ("image_decoder", "decoders.image"),
        ("experimental.peek_image_shape", "peek_image_shape"),
    ],
)
def test_deprecated_names(old, new):
    text = f"fn.{old} is deprecated: it is fn.{new}"
    with Pipeline(batch_size=1, num_threads=1), pytest.warns(DeprecationWarning, match=text) as caught:
        FN[old](*inputs_of(new), **needed(new))
    assert caught[0].filename == __file__
    assert inspect.signature(FN[old]) == inspect.signature(FN[new])


class CudaModule(types.ModuleType):
    """A module with CUDA kernels, on a machine whose driver can't run them."""

    def __init__(self, name, version=jaxdali.__version__):
        super().__init__(name)
        self.build_info = lambda: {"version": version}
        self.driver_problem = lambda: f"no driver for {name}"


@pytest.fixture
def no_cuda_module(monkeypatch):
    """There is no GPU, and no CUDA module until a test provides one."""
    monkeypatch.setattr(_ffi, "has_nvidia_gpu", lambda: False)
    for name in ("jaxdali._cuda", "jaxdali_cuda13", "jaxdali_cuda13._cuda"):
        monkeypatch.setitem(sys.modules, name, None)


def test_cuda_module_is_searched_in_both_places(no_cuda_module, monkeypatch):
    """First beside `_cpu`, then in its own package. The description of an unusable module has the reason."""
    assert _ffi._load_cuda()[1] == frozenset()
    monkeypatch.setitem(sys.modules, "jaxdali_cuda13", types.ModuleType("jaxdali_cuda13"))
    monkeypatch.setitem(sys.modules, "jaxdali_cuda13._cuda", CudaModule("package"))
    assert _ffi._load_cuda() == ("not used: no driver for package", frozenset())
    monkeypatch.setitem(sys.modules, "jaxdali._cuda", CudaModule("ours"))
    assert _ffi._load_cuda() == ("not used: no driver for ours", frozenset())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reason", ["nvcc not found", ""])
def test_missing_cuda_module_names_the_build_command(reason, no_cuda_module, monkeypatch):
    monkeypatch.setattr(_cpu, "build_info", lambda: {"cuda_left_out": reason})
    text, kernels = _ffi._load_cuda()  # without a GPU there is no warning, which would be an error
    assert text.startswith(f"not built: {reason or 'its file is missing'}. ")
    assert not kernels
    monkeypatch.setattr(_ffi, "has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(_ffi, "_may_use_gpus", lambda platforms: True)
    with pytest.warns(RuntimeWarning, match=f"has an NVIDIA GPU.*{re.escape(text)}") as caught:
        _ffi._load_cuda()
    assert len(caught) == 1
    assert re.search(r": pip install .*(JAXDALI_CUDA=AUTO -e /|\./ffi/cuda13)", text)
    monkeypatch.setattr(_ffi, "_may_use_gpus", lambda platforms: False)
    _ffi._load_cuda()


def test_remedy_for_old_gpu(no_cuda_module, monkeypatch):
    """There is no remedy: no kernel runs on such a GPU."""
    reason = "the GPU is older than compute capability 8.0"
    assert f'"{reason}"' in (places.ROOT / "ffi" / "gpus.cmake").read_text()
    monkeypatch.setattr(_cpu, "build_info", lambda: {"cuda_left_out": reason})
    assert _ffi._load_cuda()[0] == f"not built: {reason}"


def test_jax_platforms_with_gpus():
    assert [_ffi._may_use_gpus(platforms) for platforms in (None, "", "cuda", "cuda,cpu", "gpu")] == [True] * 5
    assert not _ffi._may_use_gpus("cpu")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("jaxdali._cuda", "install jaxdali again"), ("jaxdali_cuda13._cuda", f"jaxdali-cuda13=={jaxdali.__version__}")],
)
def test_cuda_module_of_another_version_is_refused(name, remedy, no_cuda_module, monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxdali_cuda13", types.ModuleType("jaxdali_cuda13"))
    monkeypatch.setitem(sys.modules, name, CudaModule(name, "0.0.9"))
    with pytest.warns(
        RuntimeWarning, match=f"{name} is of version 0.0.9, and jaxdali of {jaxdali.__version__}: .*{remedy}"
    ):
        description, kernels = _ffi._load_cuda()
    assert description.startswith("not used: ")
    assert not kernels


def test_stub_of_the_compiled_module_is_current():
    stubgen = pytest.importorskip("nanobind.stubgen")
    generator = stubgen.StubGen(_cpu)
    generator.put(_cpu)
    text = (places.ROOT / "jaxdali" / "_cpu.pyi").read_text()
    assert text.partition("\n")[2] == generator.get(), text.partition("\n")[0]


def test_one_operator_is_one_file():
    """`fn.random.uniform` stands in `fn/random/_uniform.py`, `fn.hue` in `fn/_image/hue.py`: the rule in
    CONTRIBUTING.md.
    """
    misplaced = []
    for name, f in FN.items():
        *folders, operator = name.split(".")
        *_, folder, file = f.__module__.split(".")
        if (f.__doc__ or "").startswith(OTHER_NAMES) or file == "ones_and_zeros":  # the exceptions that the rule names
            continue
        if [folder, file] != [folders[-1], f"_{operator}"] if folders else file != operator:
            misplaced.append(f"{name} is in {f.__module__}")
    assert misplaced == []
