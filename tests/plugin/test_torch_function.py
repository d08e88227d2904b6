"""torch_python_function and its class: arguments of the function, and conversion of the tensors that it returns."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, ops, pipeline_def, types

torch = pytest.importorskip("torch")

from jaxdali.plugin import pytorch  # noqa: E402 - it needs torch
from jaxdali.plugin.pytorch import TorchPythonFunction  # noqa: E402
from jaxdali.plugin.pytorch.fn import torch_python_function  # noqa: E402

RAGGED = [np.arange(2 * n, dtype=np.uint8).reshape(n, 2) for n in (3, 70, 1)]
TYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()


def samples(out):
    return [np.asarray(x) for x in out]


def test_names():
    shown = "DALIClassificationIterator DALIGenericIterator DALIRaggedIterator LastBatchPolicy TorchPythonFunction feed_ndarray fn"
    assert dir(pytorch) == [*shown.split(), "to_torch_type", "torch_utils"]
    assert pytorch.to_torch_type[types.FLOAT16] == torch.float16
    assert dir(pytorch.torch_utils) == ["feed_ndarray", "to_torch_tensor", "to_torch_type"]
    assert dir(pytorch.fn) == ["torch_python_function"]


def forms_of_call(batch_processing):
    """Calls by the function and by the class."""
    return [
        lambda f, x, y: torch_python_function(
            x, y, function=f, num_outputs=2, batch_processing=batch_processing, output_layouts=["HW"]
        ),
        lambda f, x, y: TorchPythonFunction(f, 2, "cpu", batch_processing, output_layouts=["HW"])(x, y),
    ]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("form", [0, 1])
def test_outputs(form, batch, on_device):
    arguments = []

    def of_sample(x, y):
        arguments.append((type(x), x.device.type))
        x += 1  # changes nothing but its own tensor
        return x.T.flip(0), (x * y).sum()

    def of_batch(xs, ys):
        assert type(xs) is type(ys) is list
        both = [of_sample(x, y) for x, y in zip(xs, ys, strict=True)]
        return [a for a, _ in both], [b for _, b in both]

    factor = [np.float32(f) for f in (1, 2, 3)]
    call = forms_of_call(batch)[form]
    a, b, x = run(lambda x, f: (*call(of_batch if batch else of_sample, x, f), x), RAGGED, factor, on_device=on_device)
    assert arguments == [(torch.Tensor, "cpu")] * 3
    assert (a.layout(), b.layout()) == ("HW", "")
    for rotated, total, unchanged, x0, f in zip(samples(a), samples(b), samples(x), RAGGED, factor, strict=True):
        np.testing.assert_array_equal(rotated, (x0 + 1).T[::-1])
        assert (total.dtype, total.shape, float(total)) == (np.float32, (), f * (x0 + 1.0).sum())
        np.testing.assert_array_equal(unchanged, x0)


@pytest.mark.parametrize("name", TYPES)
def test_types(name):
    def function(x):
        assert x.dtype == getattr(torch, name)
        return x

    inputs = [x.astype(name) for x in RAGGED]
    (out,) = run(lambda x: torch_python_function(x, function=function), inputs)
    for output, x in zip(samples(out), inputs, strict=True):
        assert output.dtype == x.dtype
        np.testing.assert_array_equal(output, x)


def test_tensors_with_gradients_and_views():
    """Tensors of a graph of gradients, and views: expanded ones, and ones without elements."""
    with_gradient = torch.ones(2, requires_grad=True)
    for function, expected in (
        (lambda x: with_gradient * 2, [2, 2]),
        (lambda x: torch.nn.Parameter(torch.ones(2)), [1, 1]),
        (lambda x: x[:1, 1:].expand(2, 3), [[1] * 3] * 2),
        (lambda x: x[:, 2:], np.zeros((3, 0))),
    ):
        (out,) = run(lambda x, f=function: torch_python_function(x, function=f), RAGGED[:1])
        np.testing.assert_array_equal(samples(out)[0], expected)


def test_without_inputs_or_outputs():
    calls = []

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        x = torch_python_function(function=lambda: torch.full((3,), 7))
        assert torch_python_function(x, function=lambda x: calls.append(x.tolist()), num_outputs=0, preserve=True) == []
        return x

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    assert [x.tolist() for x in samples(pipe.run()[0])] == [[7] * 3] * 2
    assert calls == [[7] * 3] * 2


def test_errors():
    def raises(x):
        raise KeyError("boo")

    for function, options, message in (
        (raises, {}, r"KeyError: 'boo'"),
        (lambda x: None, {}, "must return torch.Tensors, got NoneType"),
        (lambda x: x.numpy(), {}, "must return torch.Tensors, got ndarray"),
        (lambda x: x.to(torch.complex64), {}, "must return arrays of numbers"),
        (lambda x: x.bfloat16(), {}, "BFloat16"),
        (lambda x: (x, x), {}, "must return 1 output, got 2"),
        (
            lambda x: x if len(x) == 3 else x * 1.0,
            {},
            r"one type and number of dimensions in all samples, got .*float32.*uint8",
        ),
        (lambda x: x[:1], {"batch_processing": True}, "a list of 3 arrays, got 1"),
    ):
        with pytest.raises(OperatorError, match=f"^torch_python_function .*test_torch_function.py.*{message}"):
            run(lambda x, f=function, m=options: torch_python_function(x, function=f, **m), RAGGED)
    with pytest.raises(
        TypeError, match=r"^plugin\.pytorch\.TorchPythonFunction: .* 'num_output'; did you mean 'num_outputs'"
    ):
        TorchPythonFunction(len, num_output=2)
    assert isinstance(TorchPythonFunction(len), ops.PythonFunction.__base__)


@pytest.mark.parametrize("make", [torch_python_function, lambda *x, **k: TorchPythonFunction(**k)(*x)])
def test_results_on_the_accelerator(make):
    """The function still runs on the host."""

    @pipeline_def(batch_size=1, num_threads=1)
    def define():
        first = make(function=lambda: torch.full((3,), 7), device="gpu")
        pair = make(first, function=lambda x: (x + 1, x.cpu() * 2), num_outputs=2, device="gpu")
        assert [x.device for x in (first, *pair)] == ["gpu"] * 3
        return tuple(pair)

    assert [np.asarray(x[0]).tolist() for x in define().run()] == [[8] * 3, [14] * 3]
