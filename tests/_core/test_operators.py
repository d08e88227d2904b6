"""The guarantees that the kinds of operators give to their authors."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from jaxdali import fn, pipeline_def, types
from jaxdali._core.building import add
from jaxdali._core.context import HostContext, LowerContext
from jaxdali._core.operator import ProgramOperator, Setup
from jaxdali._core.ragged import Ragged
from jaxdali._core.values import Spec, Value


class Numbered(ProgramOperator):
    """Adds to each sample its number, which `setup` hands to `lower`."""

    name = "numbered"

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return (x,)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((x.shapes if x.spec.shape is None else None,), {"number": np.arange(ctx.N, dtype=np.float32)})

    def lower(self, ctx: LowerContext, x: Any) -> tuple[Any, ...]:
        number = ctx.params["number"]
        assert number.shape == (ctx.B,)
        return (dataclasses.replace(x, data=x.data + number.sum()) if isinstance(x, Ragged) else x + number[:, None],)


@pytest.mark.parametrize("dense", [True, False])
def test_setup_runs_for_dense_and_ragged_outputs(dense):
    samples = [np.zeros(4, np.float32) for _ in range(3)]

    @pipeline_def(batch_size=3)
    def pipeline():
        x = fn.external_source(lambda: samples, dtype=types.FLOAT, ndim=1)
        if dense:
            x = types.Constant(samples[0]) + fn.random.uniform(range=(0.0, 1e-9))
        return add(Numbered(), x)

    pipe = pipeline()
    (batch,) = pipe.run()
    pipe.close()
    expected = [[n] * 4 for n in range(3)] if dense else [[3] * 4] * 3
    np.testing.assert_allclose([batch.at(i) for i in range(3)], expected, atol=1e-6)


def test_operator_becomes_a_dataclass_on_first_use():
    class Family(ProgramOperator):
        name = "family"
        level: int

    class Member(Family):
        size: int = 2

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Decorated(Family):
        size: int = 2

    assert "__dataclass_fields__" not in vars(Member)
    assert Member(level=1) == Member(level=1, size=2) != Member(level=1, size=3)
    assert hash(Member(level=1)) == hash(Member(level=1))
    assert [f.name for f in Member.fields()] == ["args", "level", "size"]
    assert dataclasses.replace(Member(level=1), level=4).level == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        Member(level=1).size = 3  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="Decorated must not be decorated as a dataclass"):
        Decorated(level=1)
    with pytest.raises(TypeError, match="level"):
        Member(size=1)  # pyright: ignore[reportCallIssue]
