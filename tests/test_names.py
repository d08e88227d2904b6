"""Names that users see, and `repr`."""

import importlib
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import jaxdali
from jaxdali import Pipeline, fn, ops, pipeline_def, types
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function


def define(folder="."):
    return fn.readers.file(file_root=folder)


def test_public_modules_show_users_names_alone():
    for module in (jaxdali, fn, fn.random, fn.decoders, fn.experimental, fn.readers, fn.transforms):
        names = dir(module)
        assert names == sorted({*names, *(n for n in vars(module) if not n.startswith("_"))})
        assert set(module.__all__) <= set(names)
        for name in names:  # nothing that only happens to be imported
            x = getattr(module, name)
            place = getattr(x, "__name__" if isinstance(x, type(jaxdali)) else "__module__", "jaxdali")
            assert place.startswith("jaxdali"), name
    assert {"cast", "resize", "random", "readers"} <= set(dir(fn))


STUBS = sorted(pathlib.Path(jaxdali.__file__).parent.rglob("__init__.pyi"))


def test_stubs_are_indexes():
    """Each line is of the form that `lazy_index` reads, and each name is there."""
    for stub in STUBS:
        _, *lines = filter(None, stub.read_text().splitlines())
        assert all(re.fullmatch(r"from \.\S* import (\w+) as \1", line) for line in lines), stub
        module = importlib.import_module(".".join(("jaxdali", *stub.parent.relative_to(STUBS[0].parent).parts)))
        for line in lines:
            getattr(module, line.rpartition(" ")[2])
    assert len(STUBS) > 10


def test_the_list_of_commands():
    root = pathlib.Path(jaxdali.__file__).parent
    files = [path for path in root.rglob("*.py") if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")]
    modules = {".".join(p.relative_to(root.parent).with_suffix("").parts).removesuffix(".__main__") for p in files}
    runs = [
        subprocess.run([sys.executable, "-m", "jaxdali", *arguments], capture_output=True, text=True)
        for arguments in ((), ("resize",))
    ]
    assert [r.returncode for r in runs] == [0, 2]
    assert set(re.findall(r"^  python -m (\S+)  ", runs[0].stdout, re.MULTILINE)) == modules - {"jaxdali"}
    assert "unrecognized arguments: resize" in runs[1].stderr


def test_operators_are_imported_when_they_are_used():
    code = "import sys; from jaxdali import fn; fn.resize; print([f'jaxdali.fn._image.{n}' in sys.modules for n in ('resize', 'rotate')])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[True, False]\n"
    )


# Names of DALI 2.4's modules, with BFLOAT16 and INTERP_AREA, all that users see of ours; `Enum`, `List` and the like
# are left out.
DALI = {
    "types": "ANY_DATA BFLOAT16 BGR BOOL BatchInfo CPU_ONLY_DEVICE_ID Constant ConstantNode DALIDataType DALIImageType DALIInterpType "
    "DATA_TYPE FEATURE FLOAT FLOAT16 FLOAT64 GRAY IMAGE_TYPE INT16 INT32 INT64 INT8 INTERP_AREA INTERP_CUBIC INTERP_GAUSSIAN "
    "INTERP_LANCZOS3 INTERP_LINEAR INTERP_NN INTERP_TRIANGULAR INTERP_TYPE NCHW NFCHW NFHWC NHWC NO_TYPE PYTHON_OBJECT RGB SAME STRING "
    "SampleInfo ScalarConstant TENSOR_LAYOUT TensorLayout UINT16 UINT32 UINT64 UINT8 YCbCr to_dali_type to_numpy_type",
    "math": "abs acos acosh asin asinh atan atan2 atanh cbrt ceil clamp cos cosh exp fabs floor fpow log log10 log2 max min pow rsqrt sin "
    "sinh sqrt tan tanh",
    "backend": "TensorCPU TensorGPU TensorListCPU TensorListGPU",
    "data_node": "DataNode newaxis",
    "tensors": "TensorCPU TensorGPU TensorListCPU TensorListGPU",
    "tfrecord": "FixedLenFeature FixedLenSequenceFeature LengthsFeature RaggedFeature VarLenFeature float32 int64 string",
    "pickling": "pickle_by_value",
    "pipeline": "DataNode OperatorConcurrency Pipeline StreamPolicy do_not_convert experimental pipeline_def",
    "pipeline.experimental": "pipeline_def",
    "plugin.base_iterator": "LastBatchPolicy",
    "plugin.jax": "DALIGenericIterator DALIGenericPeekableIterator clu data_iterator fn iterator peekable_data_iterator",
    "plugin.jax.clu": "DALIGenericPeekableIterator peekable_data_iterator",
    "plugin.jax.fn": "jax_function",
    "plugin.jax.iterator": "DALIGenericIterator data_iterator",
    "plugin.triton": "autoserialize",
}
ABSENT = {"plugin.mxnet", "plugin.paddle", "plugin.tf"}  # which say what to use instead
BEYOND = {"benchmark", "extend", "index", "pack", "plugin.grain", "plugin.jax.colocated", "port", "ray", "vlm"}


@pytest.mark.parametrize("name", DALI)
def test_modules_show_dalis_names_alone(name):
    module = importlib.import_module(f"jaxdali.{name}")
    assert dir(module) == sorted(DALI[name].split())
    assert set(module.__all__) <= set(dir(module))


def test_public_modules_are_dalis():
    package = pathlib.Path(jaxdali.__file__).parent
    modules = {p.relative_to(package).with_suffix("").parts for p in package.rglob("*.py")}
    modules = {tuple(x for x in m if x != "__init__") for m in modules}
    additions = ("fn", "ops", "auto_aug", "dynamic", "experimental")
    public = {".".join(m) for m in modules if m and not any(x.startswith("_") for x in m) and m[0] not in additions}
    assert (
        public - DALI.keys()
        == BEYOND
        | {"backend_impl", "plugin", "plugin.pytorch", "plugin.pytorch.fn", "plugin.pytorch.torch_utils"}
        | ABSENT
    )


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (
            fn,
            "decoder_image",
            r"there is no operator fn\.decoder_image, .*; the closest that is: fn\.decoders\.image$",
        ),
        (fn, "VideoReader", r"; instead: fn\.readers\.video$"),
        (fn, "optical_flow", r"fn\.optical_flow of DALI is not in jaxdali: it needs NVIDIA"),
        (
            fn,
            "resizee",
            r"there is no operator fn\.resizee, neither here nor in DALI 2\.4; the closest that is: fn\.resize$",
        ),
        (jaxdali, "Pipelin", "has no attribute 'Pipelin'; did you mean 'Pipeline'?"),
        (
            jaxdali.plugin,
            "tf",
            r"^plugin\.tf of DALI is not in jaxdali: use plugin\.jax; tf\.data\.Dataset\.from_generator",
        ),
        (jaxdali, "plugin_manager", r"^plugin_manager of DALI is not in jaxdali: .* jaxdali\.extend"),
        (ops, "python_op_factory", r"^ops\.python_op_factory of DALI is not in jaxdali: .* jaxdali\.extend"),
        (jaxdali.backend, "GetSchema", r"^backend\.GetSchema of DALI is not in jaxdali: python -m jaxdali\.fn"),
        (jaxdali.backend, "PreallocateDeviceMemory", r"^backend\.Preallocate.*: XLA manages memory"),
        (types, "PipelineAPIType", r"^types\.PipelineAPIType of DALI is not in jaxdali: .*enable_api_check"),
        (
            jaxdali.plugin.base_iterator,
            "_DaliBaseIterator",
            r"^plugin\.base_iterator\._DaliBaseIterator .*derive from DALIGenericIt",
        ),
        (ops, "HostDecoder", r"^ops\.HostDecoder of DALI is not in jaxdali: use ops\.decoders\.Image$"),
        (ops, "nvJPEGDecoderRandomCrop", r'not in jaxdali: use ops\.decoders\.ImageRandomCrop\(device="mixed"\)$'),
        (ops, "OpticalFlow", r"^ops\.OpticalFlow of DALI is not in jaxdali: it needs NVIDIA's hardware engine"),
        (ops, "Resise", r"^jaxdali\.ops has no class 'Resise'; did you mean 'Resize'\?$"),
    ],
)
def test_unknown_names_suggest_others(module, name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(module, name)
    assert not hasattr(module, name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pipeline(batchsize=3), "Pipeline: got an unexpected argument 'batchsize'; did you mean 'batch_size'?"),
        (
            lambda: pipeline_def(batchsize=3),
            "pipeline_def: got an unexpected argument 'batchsize'; did you mean 'batch_size'?",
        ),
        (
            lambda: pipeline_def(define)(numthreads=3),
            "define: got an unexpected argument 'numthreads'; did you mean 'num_threads'?",
        ),
        (lambda: pipeline_def(define)(foldr="x"), "define: got an unexpected argument 'foldr'; did you mean 'folder'?"),
        (
            lambda: data_iterator(define, ["x"])(foldr="x"),
            "define: got an unexpected argument 'foldr'; did you mean 'folder'?",
        ),
        (
            lambda: data_iterator(outputs_map=["x"]),
            "data_iterator: got an unexpected argument 'outputs_map'; did you mean 'output_map'?",
        ),
        (
            lambda: data_iterator(output_map=["x"], batch_size=4),
            "data_iterator: got an unexpected argument 'batch_size'; pass it in the call of the function that it returns: iterator_fn(",
        ),
        (
            lambda: peekable_data_iterator(reader="r"),
            "peekable_data_iterator: got an unexpected argument 'reader'; did you mean 'reader_name'?",
        ),
        (
            lambda: DALIGenericIterator([], [], autoreset=True),
            "DALIGenericIterator: got an unexpected argument 'autoreset'; did you mean 'auto_reset'?",
        ),
        (
            lambda: jax_function(num_output=1),
            "jax_function: got an unexpected argument 'num_output'; did you mean 'num_outputs'?",
        ),
        (lambda: fn.readers.file(file=["x"]), "readers.file: got an unexpected argument 'file'; did you mean 'files'?"),
        (
            lambda: ops.readers.File(file=["x"]),
            "ops.readers.File: got an unexpected argument 'file'; did you mean 'files'?",
        ),
        (
            lambda: Pipeline(nonsense=1),
            "Pipeline: got an unexpected argument 'nonsense'; it takes batch_size, num_threads, ",
        ),
    ],
)
def test_unknown_arguments(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_repr():
    @pipeline_def(batch_size=4, num_threads=1, seed=5)
    def define():
        x = fn.external_source(lambda info: np.zeros((2, 3), np.float32), batch=False, layout="HW", name="mine")
        assert repr(x).startswith("DataNode(name='mine', operator='external_source', device='cpu', created at ")
        return x, fn.cast(x, dtype=types.UINT8).gpu()

    pipe = define()
    assert repr(pipe).splitlines()[:2] == [
        "Pipeline(batch_size=4, num_threads=1, device_id=None, seed=5)",
        "  operators: external_source, cast, copy",
    ]
    assert repr(pipe).endswith("output 1: not known before it is built, on the gpu, of copy")
    pipe.set_outputs(1)  # looking changes nothing
    pipe = define()
    pipe.build()
    assert repr(pipe).splitlines()[2:] == [
        "  output 0: float32[4, ?, ?] HW, on the cpu, of external_source",
        "  output 1: uint8[4, ?, ?] HW, on the gpu, of copy",
    ]
    assert repr(Pipeline(batch_size=1)).endswith("not defined yet")
    it = DALIGenericIterator(define(), ["a", "b"])
    next(it)
    assert repr(it).splitlines() == [
        "DALIGenericIterator: epoch 0, 1 batches taken, 4 samples of each of 1 pipeline",
        "  a: float32[4, ?, ?] HW, on the cpu, of external_source",
        "  b: uint8[4, ?, ?] HW, on the gpu, of copy",
    ]
    it.close()
    assert repr(it) == "DALIGenericIterator: closed"


def test_misuse_is_a_runtime_error_too():
    def operand(value):
        return fn.external_source(lambda: [np.array(value)] * 2)

    for wrong in (
        lambda: -operand([True]),
        lambda: operand([1.0]) & operand([1.0]),
        lambda: ~operand([1.0]),
        lambda: operand([1.0]) << 1,
        lambda: operand([True]) - operand([True]),
        lambda: operand([1.0, 2.0]) + operand([1.0, 2.0, 3.0]),
        lambda: operand([1.0])[0, 0],
        lambda: operand([1.0])[5],
    ):
        pipe = Pipeline(batch_size=2, num_threads=1)
        pipe.set_outputs(wrong())
        with pytest.raises(RuntimeError):
            pipe.run()


def test_a_call_is_one_operator_in_repr():
    """`decoders.image` makes a node for the headers, and one for the pixels: the user wrote one."""

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        image = fn.decoders.image(fn.readers.file(files=["x.jpg"])[0])
        return fn.flip(fn.flip(image))

    assert "  operators: readers.file, decoders.image, flip, flip" in repr(pipeline()).splitlines()
