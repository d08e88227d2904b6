"""Names that DALI has for operators besides their own."""

import contextlib
import functools

import numpy as np
import places
import pytest

from jaxdali import DataNode, Pipeline, fn, ops, pipeline_def, types


def of(module, name):
    return functools.reduce(getattr, name.split("."), module)


JPEG = np.fromfile(min(places.PHOTOS.rglob("*.jpg")), np.uint8)


@pytest.mark.parametrize(
    ("old", "new", "arguments"),
    [
        ("experimental.decoders.image", "decoders.image", {}),
        ("experimental.decoders.image_crop", "decoders.image_crop", {"crop": (5, 7)}),
        ("experimental.decoders.image_random_crop", "decoders.image_random_crop", {"seed": 3}),
        (
            "experimental.decoders.image_slice",
            "decoders.image_slice",
            {"rel_start": [0.1, 0.2], "rel_shape": [0.5, 0.5]},
        ),
        ("experimental.resize", "resize", {"size": [5, 6]}),
    ],
)
def test_images(old, new, arguments):
    """Decoders warn, as in DALI; `experimental.resize` is not deprecated there."""
    deprecated = old != "experimental.resize"
    *_, name = old.split(".")
    of_class = of(ops, ".".join([*old.split(".")[:-1], "".join(word.capitalize() for word in name.split("_"))]))
    pipe = Pipeline(batch_size=1, num_threads=1, seed=1)
    with pipe:
        x = fn.external_source(lambda: [JPEG])
        x = x if deprecated else fn.decoders.image(x)
        want = of(fn, new)(x, **arguments)
        with (
            pytest.warns(DeprecationWarning, match=f"fn.{old} is deprecated: it is fn.{new} now")
            if deprecated
            else contextlib.nullcontext()
        ):
            renamed_output = of(fn, old)(x, **arguments)
        with pytest.warns(DeprecationWarning) if deprecated else contextlib.nullcontext():
            of_ops = of_class(**arguments)(x)
        pipe.set_outputs(want, renamed_output, of_ops)
    want, renamed_output, of_ops = (np.asarray(x[0]) for x in pipe.run())
    if "seed" in arguments:  # the numbers belong to the operator's place
        assert renamed_output.ndim == of_ops.ndim == want.ndim
    else:
        np.testing.assert_array_equal(renamed_output, want)
        np.testing.assert_array_equal(of_ops, want)


def test_translation_and_types():
    @pipeline_def(batch_size=1, num_threads=1, device_id=types.CPU_ONLY_DEVICE_ID)
    def define():
        with pytest.warns(DeprecationWarning, match=r"it is fn\.transforms\.translation now"):
            matrix = fn.transform_translation(offset=(3.0, 4.0))
        constant = types.ConstantNode("cpu", 3, types.INT16, [2], "")
        assert isinstance(constant, DataNode)
        return matrix, constant

    matrix, constant = define().run()
    assert np.asarray(matrix[0]).tolist() == [[1, 0, 3], [0, 1, 4]]
    assert np.asarray(constant[0]).tolist() == [3, 3]
