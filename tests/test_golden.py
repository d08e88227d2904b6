"""Every operator against data recorded from NVIDIA DALI."""

import golden
import pytest

OPERATORS = [
    "arithmetic.add",
    "arithmetic.bitwise",
    "arithmetic.broadcast",
    "arithmetic.compare",
    "arithmetic.const",
    "arithmetic.*div",
    "arithmetic.m*",
    "arithmetic.[su]*",
    "cast",
    "decoders.image*",
    "math.*",
    "peek_image_shape",
    "random.*",
    "resize",
    "rotate",
    "shapes",
    "slice.subscript",
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(operator):
    wrong = golden.failures(operator)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("operator", "every"), [("arithmetic.*", 7), ("cast", 2), ("math.*", 2), ("slice.subscript", 2)])
def test_operator_in_program(operator, every):
    """Operators that the cases above run on the host."""
    wrong = golden.failures(operator, on_device=True, every=every)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", [c for c in golden.cases("chain") if c.id in ("chain_d000", "chain_d002")], ids=lambda c: c.id)
def test_chain(case):
    assert not golden.check(case)
