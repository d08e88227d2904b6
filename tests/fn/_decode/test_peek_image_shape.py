"""peek_image_shape gives the shape that decoders.image gives."""

import importlib.util

import golden
import numpy as np
import pytest
from images import decode

import jaxdali
from jaxdali import fn, types

# Deep colour, which only imagecodecs decodes.
LEFT_OUT = () if importlib.util.find_spec("imagecodecs") else ("rgb16.tif", "odd_16bit.cropped.jp2")
FOUR = ["cmyk.jpg", "odd_pil_sample_cmyk.jpg", "ycck.jpg"]
PATHS = [p for p in golden.IMAGES if not p.name.startswith("bad") and p.name not in LEFT_OUT]
FILES = [p.read_bytes() for p in PATHS]


@pytest.mark.parametrize("upright", [True, False])
@pytest.mark.parametrize("kind", [types.RGB, types.GRAY, types.ANY_DATA])
def test_agrees_with_decoder(kind, upright):
    shapes = decode(FILES, fn.peek_image_shape, image_type=kind, adjust_orientation=upright)
    images = decode(FILES, output_type=kind, adjust_orientation=upright)
    names = [p.name for p in PATHS]
    wrong = {n for n, s, x in zip(names, shapes, images, strict=True) if tuple(s) != x.shape}
    assert wrong == (set(FOUR) & set(names) if kind == types.ANY_DATA else set())


@pytest.mark.parametrize("kind", [types.RGB, types.GRAY, types.ANY_DATA])
def test_four_components(kind):
    """DALI's shapes of CMYK and YCCK: with ANY_DATA not what `decoders.image` gives (DALI's can't decode them then)."""
    files = [(golden.ROOT / "files" / name).read_bytes() for name in FOUR]
    files.append(files[0][:2] + b"\xff\xff\xff\x01\xff\xfe\0\x04\xff\xc0" + files[0][2:])  # fill bytes, TEM, a comment
    channels = {types.RGB: 3, types.GRAY: 1}.get(kind, 4)
    shapes = decode(files, fn.peek_image_shape, image_type=kind)
    assert [s.tolist() for s in shapes] == [[*size, channels] for size in ((64, 80), (100, 100), (64, 80), (64, 80))]


@pytest.mark.parametrize("name", ["INT32", "UINT32", "INT64", "UINT64", "FLOAT", "FLOAT64"])
def test_dtype(name):
    (shape,) = decode(FILES[:1], fn.peek_image_shape, dtype=getattr(types, name))
    assert shape.dtype == types.to_numpy_type(getattr(types, name))
    assert (shape == decode(FILES[:1])[0].shape).all()


def test_errors():
    with pytest.raises(jaxdali.SampleError, match="known format"):
        decode([b"not an image"], fn.peek_image_shape)
    with pytest.raises(TypeError, match="dtype must be one of"):
        decode(FILES[:1], fn.peek_image_shape, dtype=types.UINT8)
    with pytest.raises(ValueError, match="image_type must be one of"):
        decode(FILES[:1], fn.peek_image_shape, image_type=9)
    with pytest.raises(TypeError, match="encoded images"):
        decode(FILES[:1], lambda x: fn.peek_image_shape(np.zeros((2, 2), np.uint8)))
