"""Every operator against data recorded from NVIDIA DALI."""

import os

import golden
import pytest

# Run only every n-th case of each operator: CI's additional runs, after one of all cases, take fewer.
EVERY = int(os.environ.get("JAXDALI_GOLDEN_EVERY", "1"))


@pytest.mark.parametrize("operator", golden.operators())
def test_operator(operator):
    wrong = golden.failures(operator, every=EVERY)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("operator", "every"), [("arithmetic.*", 7), ("cast", 2), ("math.*", 2), ("slice.subscript", 2)]
)
def test_operator_in_program(operator, every):
    """Operators that the cases above run on the host."""
    wrong = golden.failures(operator, on_device=True, every=every * EVERY)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "case", [c for c in golden.cases("chain") if c.id in ("chain_d000", "chain_d002")], ids=lambda c: c.id
)
def test_chain(case):
    assert not golden.check(case)
