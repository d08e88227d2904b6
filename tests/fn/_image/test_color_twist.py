"""The colour model of `hue`, `hsv` and `color_twist`: DALI's YIQ. The documents say so, as other libraries use HSV."""

import inspect

import numpy as np
import pytest

import jaxdali.dynamic as jd
from jaxdali import fn
from jaxdali._core.foreign import FOREIGN

PURE = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)[None, None]
TURNED = [[0, 187, 0], [152, 89, 255], [153, 0, 0]]  # by NVIDIA DALI 2.4's CPU operators


@pytest.mark.parametrize("name", ["hue", "hsv", "color_twist"])
def test_pure_colours_turned(name):
    turned = getattr(jd, name)(PURE, hue=120.0)
    assert turned.numpy()[0, 0].tolist() == TURNED
    assert f"red turned by 120 degrees is {tuple(TURNED[0])}" in " ".join(
        (inspect.getdoc(getattr(fn, name)) or "").split()
    )


def test_answers_say_the_model():
    answers = {
        row.answer for row in FOREIGN if "fn.hue(" in row.answer or "fn.hsv(" in row.answer or "hue=" in row.answer
    }
    assert len(answers) >= 5
    assert not [answer for answer in answers if "YIQ" not in answer]
