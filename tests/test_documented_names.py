"""DALI's API documents, name by name, with ``nvidia.dali`` read as ``jaxdali``."""

import importlib
import importlib.util
import inspect
import re

import jax
import places
import pytest

from jaxdali import Pipeline, backend, types
from jaxdali.plugin import base_iterator
from jaxdali.plugin import jax as dax
from jaxdali.plugin.base_iterator import LastBatchPolicy

FILL = LastBatchPolicy.FILL


MODULES = {
    "jaxdali": "fn types math pipeline backend newaxis pipeline_def Pipeline DataNode",
    "jaxdali.pipeline": "Pipeline pipeline_def",
    "jaxdali.backend": "TensorCPU TensorGPU TensorListCPU TensorListGPU",
    "jaxdali.types": "DALIDataType DALIInterpType DALIImageType TensorLayout RGB FLOAT INTERP_LINEAR Constant",
    "jaxdali.math": "sqrt clamp",
    "jaxdali.fn": "readers decoders random resize rotate external_source",
    "jaxdali.plugin.base_iterator": "LastBatchPolicy",
    "jaxdali.plugin.jax": "DALIGenericIterator data_iterator DALIGenericPeekableIterator peekable_data_iterator fn iterator clu",
    "jaxdali.plugin.jax.iterator": "DALIGenericIterator data_iterator",
    "jaxdali.plugin.jax.clu": "DALIGenericPeekableIterator peekable_data_iterator",
    "jaxdali.plugin.jax.fn": "jax_function",
}


# Methods, with their arguments as documented; a text is the names of properties or members.
JAX_ITERATOR = {
    "__init__": lambda pipelines, output_map, size=-1, reader_name=None, auto_reset=False, last_batch_padded=False,
    last_batch_policy=FILL, prepare_first_batch=True, sharding=None: 0,
    "checkpoints": lambda: 0,
    "next": lambda: 0,
    "reset": lambda: 0,
    "properties": "size",
}  # fmt: skip


TENSOR = {"dtype": lambda: 0, "layout": lambda: 0, "shape": lambda: 0, "squeeze": lambda: 0}


TENSOR_LIST = {
    "as_reshaped_tensor": lambda arg0: 0,
    "as_tensor": lambda: 0,
    "at": lambda arg0: 0,
    "is_dense_tensor": lambda: 0,
    "layout": lambda: 0,
}


TO_HOST = {"copy_to_external": lambda ptr: 0}


TO_GPU = {"copy_to_external": lambda ptr, cuda_stream=0, non_blocking=False: 0}


CLASSES = {
    dax.DALIGenericIterator: JAX_ITERATOR,
    dax.DALIGenericPeekableIterator: JAX_ITERATOR,
    Pipeline: {
        "__init__": lambda batch_size=-1, num_threads=-1, device_id=-1, seed=-1, exec_pipelined=True, prefetch_queue_depth=2,
        exec_async=True, bytes_per_sample=0, set_affinity=False, max_streams=-1, default_cuda_stream_priority=0: 0,
        "properties": "batch_size device_id num_threads",
        "build": lambda: 0,
        "define_graph": lambda: 0,
        "deserialize_and_build": lambda serialized_pipeline: 0,
        "empty": lambda: 0,
        "enable_api_check": lambda enable: 0,
        "epoch_size": lambda name=None: 0,
        "feed_input": lambda arg0, data, layout="": 0,  # its "ref" is tested below
        "iter_setup": lambda: 0,
        "outputs": lambda: 0,
        "release_outputs": lambda: 0,
        "reset": lambda: 0,
        "run": lambda: 0,
        "save_graph_to_dot_file": lambda filename, show_tensors=False, show_ids=False, use_colors=False: 0,
        "schedule_run": lambda: 0,
        "serialize": lambda: 0,
        "share_outputs": lambda: 0,
    },
    backend.TensorCPU: TENSOR | TO_HOST,
    backend.TensorGPU: TENSOR | TO_GPU,
    backend.TensorListCPU: TENSOR_LIST | {"as_array": lambda: 0, "copy_to_external": lambda arg0: 0},
    backend.TensorListGPU: TENSOR_LIST | TO_GPU | {"as_cpu": lambda: 0},
    base_iterator.LastBatchPolicy: {"members": "FILL DROP PARTIAL"},
    types.DALIDataType: {
        "members": "BOOL DATA_TYPE FEATURE FLOAT FLOAT16 FLOAT64 IMAGE_TYPE INT16 INT32 INT64 INT8 INTERP_TYPE NO_TYPE PYTHON_OBJECT "
        "STRING TENSOR_LAYOUT UINT16 UINT32 UINT64 UINT8"
    },
    types.DALIInterpType: {"members": "INTERP_CUBIC INTERP_GAUSSIAN INTERP_LANCZOS3 INTERP_LINEAR INTERP_NN INTERP_TRIANGULAR"},
    types.DALIImageType: {"members": "ANY_DATA BGR GRAY RGB YCbCr"},
}  # fmt: skip


DATA_ITERATOR = (
    lambda pipeline_fn=None, output_map=[], size=-1, reader_name=None, auto_reset=False, last_batch_padded=False,
    last_batch_policy=FILL, prepare_first_batch=True, sharding=None, devices=None: 0
)  # fmt: skip


FUNCTIONS = {
    dax.data_iterator: DATA_ITERATOR,
    dax.peekable_data_iterator: DATA_ITERATOR,
    dax.fn.jax_function: lambda function=None, num_outputs=1, output_layouts=None, sharding=None, device=None, preserve=True: (
        0
    ),
}


# By name, as the module needs PyTorch.
TORCH_ITERATOR = {k: JAX_ITERATOR[k] for k in ("next", "reset", "properties")}


TORCH_CLASSES = {
    "DALIGenericIterator": {
        "__init__": lambda pipelines, output_map, size=-1, reader_name=None, auto_reset=False, fill_last_batch=None, dynamic_shape=False,
        last_batch_padded=False, last_batch_policy=FILL, prepare_first_batch=True: 0,
        **TORCH_ITERATOR,
    },
    "DALIRaggedIterator": {
        "__init__": lambda pipelines, output_map, size=-1, reader_name=None, output_types=None, auto_reset=False, fill_last_batch=None,
        dynamic_shape=False, last_batch_padded=False, last_batch_policy=FILL, prepare_first_batch=True: 0,
        **TORCH_ITERATOR,
    },
    "DALIClassificationIterator": {
        "__init__": lambda pipelines, size=-1, reader_name=None, auto_reset=False, fill_last_batch=None, dynamic_shape=False,
        last_batch_padded=False, last_batch_policy=FILL, prepare_first_batch=True: 0,
        **TORCH_ITERATOR,
    },
}  # fmt: skip


TORCH_FUNCTIONS = {"feed_ndarray": lambda dali_tensor, arr, cuda_stream=None: 0}


def check_signature(f, documented):
    """The documented arguments come first, in their order, with their defaults; None may stand for a default that means
    "not given".
    """
    ours = [p for p in inspect.signature(f).parameters.values() if p.name != "self"]
    theirs = list(inspect.signature(documented).parameters.values())
    for p, q in zip(ours, theirs, strict=False):
        assert q.name in (p.name, "arg0"), (f, q.name)
        assert p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY), (f, q.name)
        is_optional = q.default is not q.empty
        assert (
            not is_optional or p.default == q.default or (p.default in (None, ()) and q.default in (-1, 0, "", []))
        ), (
            f,
            q.name,
        )
    assert len(ours) >= len(theirs), (f, [q.name for q in theirs[len(ours) :]])
    for p in ours[len(theirs) :]:
        # What is beyond the documents may be left out.
        assert p.default is not p.empty or p.kind is p.VAR_KEYWORD, (f, p.name)


def check_names(classes, functions):
    for cls, names in classes.items():
        for name, documented in names.items():
            if name == "members":
                assert set(documented.split()) <= set(cls.__members__)
            elif name == "properties":
                assert all(isinstance(inspect.getattr_static(cls, n), property) for n in documented.split()), cls
            elif name == "dtype":
                assert isinstance(cls.dtype, property)  # of a type that may be called
            else:
                check_signature(getattr(cls, name), documented)
    for f, documented in functions.items():
        check_signature(f, documented)


@pytest.mark.parametrize("module", MODULES)
def test_modules(module):
    namespace = importlib.import_module(module)
    assert [name for name in MODULES[module].split() if not hasattr(namespace, name)] == []


def test_names_and_arguments():
    check_names(CLASSES, FUNCTIONS)
    assert (str(types.DALIDataType.BOOL), repr(FILL)) == ("DALIDataType.BOOL", "<LastBatchPolicy.FILL: 0>")


def test_names_and_arguments_of_pytorch():
    pytest.importorskip("torch")
    from jaxdali.plugin import pytorch

    check_names(*({getattr(pytorch, k): v for k, v in names.items()} for names in (TORCH_CLASSES, TORCH_FUNCTIONS)))


def test_the_readme_names_them_all():
    readme = places.ROOT / "jaxdali" / "plugin" / "README.md"
    text = readme.read_text()
    words = set(re.findall(r"\w+", text))
    documented_names = set()
    for cls, names in [*((c.__name__, n) for c, n in CLASSES.items()), *TORCH_CLASSES.items()]:
        documented_names |= {cls, *names}
        for documented in names.values():
            documented_names |= set(
                documented.split() if isinstance(documented, str) else inspect.signature(documented).parameters
            )
    for f, documented in [*((f.__name__, d) for f, d in FUNCTIONS.items()), *TORCH_FUNCTIONS.items()]:
        documented_names |= {f, *inspect.signature(documented).parameters}
    missing = documented_names - words - {"__init__", "arg0", "properties", "members"}
    assert not missing
    for path in re.findall(r"\]\(([^)]+)\)", text):
        assert (readme.parent / path.partition("#")[0]).exists(), path
    for name in re.findall(r"`(jaxdali[\w.]*)", text):
        resolve(name)


def resolve(name):
    """Finds ``jaxdali.a.b.c``, whichever part of it is a module."""
    parts = name.split(".")
    if ("pytorch" in parts and importlib.util.find_spec("torch") is None) or (
        "colocated" in parts and jax.__version_info__ < (0, 10)
    ):
        return
    for i in range(len(parts), 0, -1):
        try:
            x = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for part in parts[i:]:
            x = getattr(x, part)
        return
