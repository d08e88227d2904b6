"""Every operator against data recorded from NVIDIA DALI."""

import golden
import pytest


@pytest.mark.parametrize("operator", golden.operators())
def test_operator(operator):
    wrong = golden.failures(operator)
    assert not wrong, "\n".join(wrong)


HOST = {"arithmetic.*": 7, "cast*": 2, "expand_dims": 1, "math.*": 2, "re[is][nh]*": 1, "slice.subscript": 2, "squeeze": 1}


@pytest.mark.parametrize(("operator", "every"), HOST.items())
def test_operator_in_program(operator, every):
    """Operators that the cases above run on the host."""
    wrong = golden.failures(operator, on_device=True, every=every)
    assert not wrong, "\n".join(wrong)
