"""Operands that calls of kernels pass to XLA: none is without elements. The binding gives it its own shape again."""

import jax
import numpy as np
import pytest
from kernel_calls import Case, run
from kernels import CASES

from jaxdali import Pipeline, fn


@pytest.fixture
def operands(monkeypatch):
    """The shapes of the operands of all calls of kernels."""
    shapes, ffi_call = [], jax.ffi.ffi_call

    def recorded(name, results, **options):
        call = ffi_call(name, results, **options)
        return lambda *operands, **attrs: shapes.extend(x.shape for x in operands) or call(*operands, **attrs)

    monkeypatch.setattr(jax.ffi, "ffi_call", recorded)
    return shapes


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kernel", CASES)
def test_every_operand_has_elements(operands, kernel, dense):
    run(next(iter(CASES[kernel](np.random.default_rng(0)))), dense=dense)
    assert len(operands) >= 6
    assert [shape for shape in operands if 0 in shape] == []


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (0, 0, 0), (0,)])
def test_images_without_elements(operands, shape):
    """Of one size, so that their extents are known from the operand alone."""
    ndim, none = len(shape), np.zeros((1, 0), np.float32)
    params = (
        np.zeros((1, ndim), np.int32),
        np.ones((1, ndim), np.int32),
        np.array([shape], np.int32),
        none,
        none,
        none,
    )
    case = Case(
        "window",
        [np.zeros(shape, np.uint8)],
        np.dtype(np.uint8),
        [shape],
        params,
        {"permutation": (*range(ndim),), "channel": -1},
    )
    results, status = run(case, dense=True)
    assert results[0].shape == shape
    assert not status.any()
    assert [shape for shape in operands if 0 in shape] == []


def test_images_without_elements_in_a_pipeline(operands):
    with Pipeline(batch_size=2, num_threads=1) as pipe:
        x = fn.external_source(source=lambda: np.zeros((2, 0, 5, 3), np.uint8), layout="HWC")
        pipe.set_outputs(fn.flip(x), fn.cast(fn.flip(x), dtype=np.float32))
    for out in pipe.run():
        assert out.shape() == [(0, 5, 3)] * 2
    assert [shape for shape in operands if 0 in shape] == []
