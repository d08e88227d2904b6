"""Messages about missing names and unsupported uses name an alternative."""

import contextlib
import copy
import functools
import inspect
import operator
import re
import subprocess
import sys
from collections import abc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdali import OperatorError, dynamic, fn, pipeline_def, types
from jaxdali._core.calls import functions
from jaxdali._core.refusals import has_values
from jaxdali._program import sharding
from jaxdali.auto_aug import augmentations, auto_augment, core, rand_augment, trivial_augment


def built(f, **arguments):
    return pipeline_def(f)(batch_size=2, num_threads=1, device_id=None, **arguments)


@pytest.mark.parametrize(
    ("use", "error", "says"),
    [
        (lambda x: x.dtype, AttributeError, r"when the pipeline runs; fn\.cast .*x\.shape is a method"),
        (lambda x: x.astype("int32"), AttributeError, r"use fn\.cast\("),
        (lambda x: x.devise, AttributeError, r"'devise'; did you mean 'device'\?"),
        (int, TypeError, r"^int\(\) of a DataNode: .* batch that does not exist yet"),
        (float, TypeError, r"^float\(\) of a DataNode: .* batch that does not exist yet"),
        (complex, TypeError, r"^complex\(\) of a DataNode: .* batch that does not exist yet"),
        (jnp.flip, TypeError, "functions of JAX take arrays, but a DataNode"),
        (jnp.mean, TypeError, "functions of JAX take arrays, but a DataNode"),
        (jnp.asarray, TypeError, "functions of JAX take arrays, but a DataNode"),
        (lambda x: jnp.stack([x, x]), TypeError, "functions of JAX take arrays, but a DataNode"),
        (lambda x: jnp.add(1, x), TypeError, "functions of JAX take arrays, but a DataNode"),
    ],
)
def test_of_a_node(use, error, says):
    with pytest.raises(error, match=says):
        built(lambda: use(fn.random.uniform())).build()


FUNCTIONS = {
    "jnp.flip": jnp.flip,
    "jnp.mean": jnp.mean,
    "jnp.asarray": jnp.asarray,
    "jnp.dot": lambda x: jnp.dot(x, x),
    "jnp.stack": lambda x: jnp.stack([x, x]),
    "jnp.where": lambda x: jnp.where(x > 1, x, 0),
    "jnp.zeros_like": jnp.zeros_like,
    "jnp.einsum": lambda x: jnp.einsum("ij->ji", x),
    "jit": lambda x: jax.jit(lambda y: y)(x),
    # Older versions of JAX raise an error of their own.
    **({"an index of JAX": lambda x: jnp.ones(3)[x]} if jax.__version_info__ >= (0, 10) else {}),
    "np.add": lambda x: np.add(x, 1),
    "np.sqrt": np.sqrt,
    "np.add.reduce": np.add.reduce,
    "np.mean": np.mean,
    "np.asarray": np.asarray,
    "np.array": lambda x: np.array([x, x]),
    "np.float32": np.float32,
    "np.full": lambda x: np.full(3, x),
    "np.arange": np.arange,
    "np.random.normal": np.random.normal,
    "an index of NumPy": lambda x: np.ones(3)[x],
    "in place": lambda x: np.add(np.ones(3), x, out=np.ones(3)),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_arrays_refuse_nodes(function, inside):
    call = lambda: FUNCTIONS[function](fn.random.uniform())
    with pytest.raises(
        (TypeError, ValueError), match=r"takes? arrays, but a DataNode .*fn\.reductions\.mean.*jax_function"
    ) as e:
        built(call).build() if inside else call()
    assert inside == ("jaxdali.dynamic" not in str(e.value))


def unpacked(x):
    a, b = x
    return a, b


VALUES = {
    "float": float,
    "an index": lambda x: [1, 2][x],
    "range": range,
    "round": round,
    "format": lambda x: f"{x:.2f}",
    "bytes": bytes,
    "len": len,
    "bool": bool,
    "list": list,
    "unpacking": unpacked,
    "in": lambda x: 3 in x,
    "reversed": lambda x: list(reversed(x)),
    "get": lambda x: x.get(),
    "shape[0]": lambda x: x.shape[0],
    "shape ==": lambda x: x.shape == (4, 3),
    "len(shape)": lambda x: len(x.shape),
    "numpy()": lambda x: x.numpy(),
    "item()": lambda x: x.item(),
    "dtype": lambda x: x.dtype,
    "ndim": lambda x: x.ndim,
    "as_array()": lambda x: x.as_array(),
    "interface": lambda x: x.__array_interface__,
    "dlpack": np.from_dlpack,
    "jnp.sum": jnp.sum,
    "np.asarray": np.asarray,
}


@pytest.mark.parametrize("value", VALUES)
def test_values_of_nodes_outside_definitions(value):
    node = fn.cat(np.arange(3), np.arange(4))
    errors = TypeError, ValueError, AttributeError, RuntimeError
    line = rf"cat, called at {re.escape(__file__)}:\d+ outside a pipeline definition"
    with pytest.raises(errors, match=rf"{line}.*jaxdali\.dynamic\.cat evaluates immediately"):
        VALUES[value](node)
    with pytest.raises(errors, match=r"arithmetic, .*\. Functions of jaxdali\.dynamic evaluate"):
        VALUES[value](node + 1)


def test_a_node_as_an_object():
    """It is no container, has a text and a type, and can be copied."""
    node = fn.cat(np.arange(3), np.arange(4))
    assert not isinstance(node, (abc.Iterable, abc.Sized, abc.Container, abc.Collection))
    assert f"{node}" == str(node) == repr(node)
    assert copy.copy(node).node is node.node
    assert inspect.signature(node.shape) == inspect.signature(fn.ones(shape=2).cpu().shape)
    assert list(inspect.signature(node.shape).parameters) == ["dtype", "device"]


def test_functions_of_values_named_in_messages():
    """`jaxdali.dynamic` has all functions that messages name. For other functions, messages name only the module."""
    of_values = [functools.reduce(getattr, name.split("."), dynamic) for name in functions if has_values(name)]
    assert len(of_values) > 120, "most operators are functions of values, too"
    assert all(map(callable, of_values))
    with pytest.raises(TypeError, match=r"\. Functions of jaxdali\.dynamic evaluate immediately"):
        float(fn.external_source(lambda: [np.zeros(2)]))


OPERATORS = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq ne lt le gt ge".split()


@pytest.mark.parametrize("where", ["numpy", "scalar", "jax"])
@pytest.mark.parametrize("name", OPERATORS)
def test_arrays_are_left_operands(name, where):
    """Python's operators on an array and a node: as NumPy's on two arrays, if DALI has the operator."""
    op = getattr(operator, name)
    left = {"numpy": np.array([7, 2, 5], np.int32), "scalar": np.int32(7), "jax": jnp.array([7, 2, 5], jnp.int32)}[
        where
    ]
    right = np.array([1, 2, 3], np.int32)

    def node(x):
        return fn.constant(idata=x.tolist(), dtype=types.INT32)

    def result(a):
        (out,) = built(lambda: op(a() if callable(a) else a, node(right))).run()
        return np.asarray(out[0])

    of_nodes = None
    with contextlib.suppress(TypeError):  # an operator that nodes lack does not work with an array, either
        of_nodes = result(lambda: node(np.broadcast_to(np.asarray(left), 3)))
    if of_nodes is None:
        with pytest.raises(TypeError):
            result(left)
    else:
        np.testing.assert_array_equal(result(left), of_nodes)
        assert result(left).dtype == of_nodes.dtype
        if name not in ("truediv", "floordiv", "mod"):
            np.testing.assert_array_equal(of_nodes, op(np.broadcast_to(np.asarray(left), 3), right))


def test_arrays_of_jax_are_operands():
    (out,) = built(lambda: jnp.ones(3, jnp.float32) + fn.constant(fdata=[2.0])).run()
    np.testing.assert_array_equal(np.asarray(out[0]), [3, 3, 3])


def test_a_branch_of_another_type():
    """For a batch in which one sample takes each branch."""

    def define():
        x = fn.constant(idata=[1], dtype=types.UINT8)
        if fn.external_source(lambda: np.array([True, False])):
            x = fn.cast(x, dtype=types.INT32)
        return x

    with pytest.raises(OperatorError, match=r"different types: 'int32', 'uint8'; fn\.cast_like"):
        built(define, enable_conditionals=True).run()


SUBMODULES = """
import sys, jaxdali
assert not any(m.startswith(("jaxdali.plugin", "jaxdali.auto_aug", "jaxdali.benchmark")) for m in sys.modules)
assert jaxdali.plugin.jax.data_iterator and jaxdali.auto_aug.augmentations.solarize and jaxdali.extend and jaxdali.port
assert not hasattr(jaxdali, "plugins") and not hasattr(jaxdali.plugin, "mxnet")
types = jaxdali.types
{}
"""


def run(last):
    return subprocess.run([sys.executable, "-c", SUBMODULES.format(last)], capture_output=True, text=True)


def test_submodules_are_imported_lazily_with_one_suggestion():
    """In a process of its own: the traceback that Python prints has Python's suggestions, too."""
    done = run("types.FLAOT16")
    assert done.stderr.splitlines()[-1] == (
        "AttributeError: module 'jaxdali.types' has no attribute 'FLAOT16'; did you mean 'FLOAT16'?"
    ), done.stderr


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("", "data_iterator", "from jaxdali.plugin.jax import data_iterator"),
        ("", "LastBatchPolicy", "from jaxdali.plugin.base_iterator import LastBatchPolicy"),
        ("", "jax_function", "from jaxdali.plugin.jax.fn import jax_function"),
        (".fn", "rand_augment", "from jaxdali.auto_aug.rand_augment import rand_augment"),
        (".fn", "trivial_augment_wide", "from jaxdali.auto_aug.trivial_augment import trivial_augment_wide"),
        *((".fn", name, f"from jaxdali.auto_aug.augmentations import {name}") for name in vars(augmentations)
          if isinstance(vars(augmentations)[name], core.Augmentation) and not hasattr(fn, name)),
    ],
)  # fmt: skip
def test_names_in_another_module(module, name, line):
    with pytest.raises(AttributeError) as e:
        exec(f"import jaxdali; jaxdali{module}.{name}")
    assert str(e.value).endswith(f": {line}")
    exec(line)  # the advice is a statement that works


@pytest.mark.parametrize("module", [augmentations, auto_augment, rand_augment, trivial_augment, core])
def test_auto_aug_modules_show_public_names(module):
    of_package = {
        n for n, x in vars(module).items() if getattr(x, "__module__", "").startswith(module.__name__) and n[0] != "_"
    }
    augmentations_here = {n for n, x in vars(module).items() if isinstance(x, core.Augmentation)}
    assert set(dir(module)) - {"decorator", "policy"} == of_package | augmentations_here
    assert module.__all__ == dir(module)


def test_without_the_cpu_backend(monkeypatch):
    def devices(backend):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(sharding.jax, "local_devices", devices)
    monkeypatch.setattr(sharding.jax, "default_backend", lambda: "tpu")
    with pytest.raises(RuntimeError, match="JAX_PLATFORMS=tpu,cpu"):
        sharding.cpu_device()


def image(*shape, layout=None):
    return fn.external_source([np.zeros((2, *shape), np.uint8)] * 2, layout=layout)


@pytest.mark.parametrize(
    "operator", [lambda x: fn.resize(x, size=(3, 3, 3)), lambda x: fn.rotate(x, angle=3.0, axis=(0, 0, 1))]
)
def test_a_volume_without_channels(operator):
    says = r"got layout 'DHW'; (fn\.expand_dims\(x, axes=\[3\], new_axis_names=\"C\"\))"
    with pytest.raises(ValueError, match=says) as e:
        built(lambda: operator(image(4, 4, 4, layout="DHW"))).run()
    x = re.search(says, str(e.value))[1]  # pyright: ignore[reportOptionalSubscript]
    (out,) = built(lambda: operator(eval(x, {"fn": fn, "x": image(4, 4, 4, layout="DHW")}))).run()
    assert out.layout() == "DHWC"


def test_an_assumed_layout():
    says = r"1 or 2 numbers per sample, got 3"
    with pytest.raises(
        ValueError, match=says + r"; the input has no layout, so HWC is assumed: fn\.reshape\(x, layout="
    ):
        built(lambda: fn.resize(image(4, 4, 4), size=(3, 3, 3))).run()
    with pytest.raises(ValueError, match=says + r"(?!.*assumed)"):
        built(lambda: fn.resize(image(4, 4, 4, layout="HWC"), size=(3, 3, 3))).run()


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: fn.clahe(x, tiles_x=2, tiles_y=2, clip_limit=2.0),
        lambda x: fn.paste(x, ratio=2.0, fill_value=0),
        fn.water,
        fn.equalize,
        lambda x: fn.saturation(x, saturation=2.0),
    ],
    ids=["clahe", "paste", "water", "equalize", "saturation"],
)
def test_ranks_without_a_layout(operator):
    """The message about a layout lists the ranks of data without a layout, all of which the operator accepts."""
    with pytest.raises(ValueError, match=r"or none \(.*\), got layout 'XYZ'") as e:
        built(lambda: operator(image(4, 4, 3, layout="XYZ"))).run()
    listed_ranks = {int(rank) for rank in re.findall(r"(\d)-D: F?D?HWC", str(e.value))}
    for rank in (3, 4, 5):
        shape = (*(2, 2)[: rank - 3], 4, 4, 3)
        refusal = pytest.raises(ValueError, match=f"got {rank}-D data without a layout")
        with contextlib.nullcontext() if rank in listed_ranks else refusal:
            built(lambda shape=shape: operator(image(*shape))).run()


def test_a_wrong_layout_with_channels():
    with pytest.raises(ValueError, match=r"got layout 'WHC'; external_source takes a layout$"):
        built(lambda: fn.resize(image(4, 4, 3, layout="WHC"), size=(3, 3))).run()


@pytest.mark.parametrize("operator", [lambda x: fn.resize(x, size=(3, 3)), fn.flip])
def test_a_sample_in_place_of_a_batch(operator):
    says = r"without a layout; gray images have an axis of channels, images\[\.\.\., None\]; external_source needs batch=False"
    with pytest.raises(ValueError, match=says):
        built(lambda: operator(fn.external_source(lambda: np.zeros((2, 4, 3), np.uint8)))).run()


@pytest.mark.parametrize(
    "operator", [lambda: fn.resize(image(4, 4, 3), size=(3, 3), device="npu"), lambda: fn.random.uniform(device="npu")]
)
def test_another_device(operator):
    with pytest.raises(ValueError, match="got 'npu'; 'gpu' and 'tpu' both name the accelerator"):
        built(operator).build()


@pytest.mark.parametrize("arguments", [{}, {"batch": False}, {"num_outputs": 2}, {"num_outputs": 2, "batch": False}])
def test_a_source_of_dicts(arguments):
    def source():
        while True:
            yield {"image": np.zeros((2, 3)), "label": np.zeros(2)}

    with pytest.raises((RuntimeError, ValueError), match=r"got a dict: return a tuple of arrays, with num_outputs=2"):
        built(lambda: tuple(x) if isinstance(x := fn.external_source(source(), **arguments), list) else x).run()


def test_a_fed_dict():
    pipe = built(lambda: fn.external_source(name="x"))
    pipe.build()
    with pytest.raises(ValueError, match=r"got a dict: .*feed each array separately"):
        pipe.feed_input("x", {"image": np.zeros((2, 3))})
