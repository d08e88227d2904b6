"""Likely mistakes of users of NumPy and PyTorch: the errors and warnings of functions of values, in words of values."""

import enum
import inspect
import pathlib
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxdali.dynamic as jd
import jaxdali.experimental.dynamic as ndd
from jaxdali import types
from jaxdali.plugin.jax.fn import jax_function

KEY = jax.random.key(0)
FUNCTIONS = {
    "resize": lambda x: jd.resize(x, size=(8, 8)),
    "flip": jd.flip,
    "rotate": lambda x: jd.rotate(x, angle=3.0),
    "warp_affine": lambda x: jd.warp_affine(x, matrix=[1, 0, 0, 0, 1, 0]),
    "crop": lambda x: jd.crop(x, crop=(2, 2)),
    "crop_mirror_normalize": lambda x: jd.crop_mirror_normalize(x, mean=[100.0], std=[50.0]),
    "random_resized_crop": lambda x: jd.random_resized_crop(x, size=8, key=KEY),
    "brightness_contrast": lambda x: jd.brightness_contrast(x, brightness=1.2),
    "gaussian_blur": lambda x: jd.gaussian_blur(x, sigma=1.0),
    "grid_mask": jd.grid_mask,
    "erase": lambda x: jd.erase(x, anchor=[0, 0], shape=[3, 3]),
    "equalize": jd.equalize,
    "water": jd.water,
    "paste": lambda x: jd.paste(x, ratio=2.0, fill_value=0),
    "slice": lambda x: jd.slice(x, start=[0, 0], shape=[2, 2]),
}
COLOR_FUNCTIONS = {  # they need 3 channels, so that images of 20 channels are an error
    "color_twist": lambda x: jd.color_twist(x, hue=3.0),
    "jpeg_compression_distortion": jd.jpeg_compression_distortion,
    "color_space_conversion": lambda x: jd.color_space_conversion(x, image_type=types.RGB, output_type=types.GRAY),
}
CHW = np.zeros((2, 3, 20, 20), np.uint8)
HWC = np.zeros((2, 20, 20, 3), np.uint8)


def in_jax(f):
    return lambda x: jd.batch(jax.jit(lambda y: f(y).jax())(x))


@pytest.mark.parametrize(
    ("function", "wrappers"),
    [
        (lambda x: jd.gaussian_blur(x, sigma=2.0), (lambda f: f, jd.jit, in_jax)),
        (lambda x: jd.laplacian(x, dtype=types.FLOAT), (lambda f: f, jd.jit, in_jax)),
        (lambda x: jd.filter(x, np.ones((2, 3, 3), np.float32)), (lambda f: f,)),
    ],
)
def test_filters_read_images(function, wrappers):
    """Without a layout, filters don't mix channels, nor the frames of videos."""
    for shape, layout in (((2, 12, 14, 3), "HWC"), ((2, 5, 12, 14, 3), "FHWC")):
        x = np.random.default_rng(3).integers(0, 255, shape, np.uint8)
        expected = function(jd.batch(x, layout=layout)).numpy()
        for wrapper in wrappers:
            np.testing.assert_array_equal(wrapper(function)(x).numpy(), expected)


def test_filters_of_dali_read_volumes():
    x = np.random.default_rng(3).integers(0, 255, (12, 14, 3), np.uint8)
    expected = jd.gaussian_blur(jd.batch(x[None], layout="DHW"), sigma=2.0).numpy()[0]
    np.testing.assert_array_equal(np.asarray(ndd.gaussian_blur(x, sigma=2.0)), expected)
    with pytest.warns(UserWarning, match="if they are HWC"):
        in_jit = jd.jit(lambda x: ndd.gaussian_blur(x, sigma=2.0))(x[None])
    np.testing.assert_array_equal(in_jit.numpy()[0], expected)
    # A function that DALI's function calls reads images.
    blur = jd.jit(lambda x: jd.gaussian_blur(x, sigma=2.0))
    called = ndd.python_function(x, function=lambda x: blur(np.asarray(x)[None]).numpy()[0])
    np.testing.assert_array_equal(np.asarray(called), jd.gaussian_blur(x[None], sigma=2.0).numpy()[0])
    assert "all axes are spatial" in ndd.gaussian_blur.__doc__
    assert "HWC, FHWC or FDHWC" in jd.gaussian_blur.__doc__


@pytest.mark.parametrize("name", ["jax", "numpy", "torch"])
def test_values_inside_of_jit(name):
    text = f"'{name}': it has no values while a function of jaxdali.dynamic.jit is traced; what the function returns has them$"
    with pytest.raises(AttributeError, match=text):
        jd.jit(lambda x: getattr(jd.flip(x), name)())(CHW)


def jitted(function):
    return jax.jit(lambda x: function(x).jax())


def warnings_of(call):
    """The texts of the warnings of a call. All of them must name a line of this file."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        call()
    assert {w.filename for w in records} <= {__file__}
    return [str(w.message) for w in records]


def is_chw_advice(texts):
    return len(texts) == 1 and 'jd.batch(x, layout="CHW")' in texts[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_channels_first_without_a_layout(name):
    """Every image operator warns once per call, at the user's line, also if the function was compiled before."""
    function = FUNCTIONS[name]
    ragged = [np.zeros((3, 20, 20), np.uint8), np.zeros((3, 20, 30), np.uint8)]
    for data in (CHW, jnp.asarray(CHW), list(CHW), ragged, jd.tensor(CHW[0])):
        assert is_chw_advice(warnings_of(lambda data=data: function(data)))
    if name != "random_resized_crop":  # its key must be an argument of the function
        assert is_chw_advice(warnings_of(lambda: jd.jit(function)(CHW)))
    assert is_chw_advice(warnings_of(lambda: jitted(function)(CHW)))
    for images in (jd.batch(HWC, layout="HWC"), HWC):
        assert not warnings_of(lambda images=images: function(images))


def test_channels_of_other_batches():
    """A function that is compiled for any shapes checks the shapes of each batch."""
    first, last = [np.zeros((3, 20, 30), np.uint16)] * 2, [np.zeros((20, 30, 3), np.uint16)] * 2
    for function in (jd.flip, jd.jit(lambda x: jd.flip(x))):
        assert not warnings_of(lambda function=function: function(last))
        assert is_chw_advice(warnings_of(lambda function=function: function(first)))
        assert not warnings_of(lambda function=function: function(last))


def test_channels_first_tensors():
    torch = pytest.importorskip("torch")
    assert is_chw_advice(warnings_of(lambda: jd.flip(torch.zeros((2, 3, 20, 20), dtype=torch.uint8))))
    assert not warnings_of(
        lambda: jd.resize(jd.batch(torch.zeros((2, 3, 20, 20), dtype=torch.uint8), layout="CHW"), size=(8, 8))
    )


def test_channels_first_videos():
    assert 'layout="FCHW"' in warnings_of(lambda: jd.flip(np.zeros((2, 7, 3, 20, 20), np.uint8)))[0]
    assert 'layout="CFHW"' in warnings_of(lambda: jd.flip(np.zeros((2, 3, 7, 20, 20), np.uint8)))[0]


@pytest.mark.filterwarnings("default")
def test_one_warning_per_line():
    def call():
        return jd.flip(CHW)

    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("default")
        for _ in range(3):
            call()
        jd.flip(CHW)
    first_line = inspect.getsourcelines(call)[1] + 1
    assert [w.lineno for w in records] == [first_line, first_line + 6]


@pytest.mark.parametrize("name", COLOR_FUNCTIONS)
def test_channels_first_of_colors(name):
    for function in (COLOR_FUNCTIONS[name], jd.jit(COLOR_FUNCTIONS[name]), jitted(COLOR_FUNCTIONS[name])):
        with pytest.raises(
            ValueError, match=r'3 channels, got 20; .* if they are CHW, jd\.batch\(x, layout="CHW"\) says so'
        ) as e:
            function(CHW)
        assert __file__ in str(e.value)


@pytest.mark.parametrize(
    "name", [*sorted(FUNCTIONS.keys() - {"slice"}), *COLOR_FUNCTIONS]
)  # `slice` takes rows of a table
@pytest.mark.parametrize("shape", [(20, 24, 3), (20, 24)], ids=["color", "gray"])
def test_image_without_sample_axis(name, shape):
    """An error, or a warning if rows of pixels can be samples, says how to pass one image."""
    function = {**FUNCTIONS, **COLOR_FUNCTIONS}[name]
    for called in (
        (function, jitted(function))
        if name == "random_resized_crop"
        else (function, jd.jit(function), jitted(function))
    ):
        texts = []
        try:
            texts = warnings_of(lambda called=called: called(np.zeros(shape, np.uint8)))
        except (ValueError, TypeError, RuntimeError) as e:
            texts = [str(e)]
        rows_are_images = len(shape) == 3 or "without a layout" in "".join(texts)
        assert not rows_are_images or (len(texts) == 1 and "one image pass [x], or x[None]" in texts[0])


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.mark.parametrize(
    "arguments",
    [
        {"mean": MEAN, "std": STD},
        {"mean": 0.5, "std": 0.5},
        {"mean": np.array(MEAN)},
        {"std": STD},
        {"mean": 0.0, "std": STD},
    ],
)
def test_statistics_of_unit_images_for_bytes(arguments):
    def function(x):
        return jd.crop_mirror_normalize(x, **arguments)

    for called in (function, jd.jit(function), jitted(function)):
        (text,) = warnings_of(lambda called=called: called(HWC))
        for name, x in arguments.items():
            assert np.all(np.equal(x, 0.0)) or f"{name} {(255 * np.atleast_1d(x)).round(3).tolist()}" in text
    assert not warnings_of(lambda: jd.crop_mirror_normalize(HWC.astype(np.float32), **arguments))
    assert not warnings_of(lambda: jd.crop_mirror_normalize(HWC, scale=2.0, **arguments))


@pytest.mark.parametrize(
    "arguments", [{}, {"mean": 0.0, "std": 255.0}, {"mean": 0.0, "std": 1.0}, {"mean": [127.0, 0.5, 0.5]}]
)
def test_statistics_of_bytes(arguments):
    assert not warnings_of(lambda: jd.crop_mirror_normalize(HWC, **arguments))


def test_statistics_of_normalize():
    assert "mean [127.5], std [127.5]" in warnings_of(lambda: jd.normalize(HWC, mean=0.5, stddev=0.5))[0]
    assert not warnings_of(lambda: jd.normalize(HWC, mean=0.5, stddev=0.5, scale=1 / 255))
    assert not warnings_of(lambda: jd.normalize(HWC))


class InterpolationMode(enum.Enum):
    BILINEAR = "bilinear"


@pytest.mark.parametrize("value", [Image.Resampling.BILINEAR, InterpolationMode.BILINEAR, "bilinear"])
def test_enums_of_other_libraries(value):
    for function in (
        lambda x: jd.resize(x, size=(8, 8), interp_type=value),
        lambda x: jd.rotate(x, angle=3.0, interp_type=value),
    ):
        for called in (function, jd.jit(function)):
            with pytest.raises(TypeError, match=r"types\.INTERP_LINEAR here"):
                called(HWC)
    with pytest.raises(TypeError, match=r"interp_type.* must be one of types\.INTERP.*got .*BILINEAR"):
        jd.resize(HWC, size=(8, 8), interp_type=[Image.Resampling.BILINEAR] * len(HWC))
    for called, libraries in (
        (lambda x: jd.resize(x, size=(8, 8), interp_type=Image.BILINEAR), "Pillow"),
        (jd.jit(lambda x: jd.rotate(x, angle=3.0, interp_type=1)), "Pillow"),
        (lambda x: jd.resize(x, size=(8, 8), interp_type=Image.BICUBIC), "Pillow and OpenCV"),
    ):
        text = f"in {libraries} this number has another meaning: pass the member"
        assert text in warnings_of(lambda called=called: called(HWC))[0]  # `Image.BILINEAR` is a plain number
    with pytest.raises(TypeError, match="numbers of other enums mean something else"):
        jd.resize(HWC, size=(8, 8), interp_type=Image.Transpose.ROTATE_90)


NAMES_OF_FILES = {
    "list": ["a.jpg"],
    "paths": [pathlib.Path("a.jpg")],
    "one": "a.jpg",
    "path": pathlib.Path("a.jpg"),
    "array": np.array(["a.jpg"]),
    "objects": np.array(["a.jpg"], object),
}


@pytest.mark.parametrize("kind", NAMES_OF_FILES)
def test_names_of_files(kind):
    for function in (jd.decoders.image, jd.jit(lambda x: jd.decoders.image(x)), jd.batch):
        with pytest.raises(TypeError, match=r"\[pathlib\.Path\(p\)\.read_bytes\(\) for p in paths\]"):
            function(NAMES_OF_FILES[kind])


def test_advice_for_names_of_files(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    paths = [str(path)]
    assert bytes(jd.io.file.read([name.encode() for name in paths])[0]) == pathlib.Path(paths[0]).read_bytes()


def test_gaps_in_lists():
    for function in (jd.decoders.image, jd.batch):
        with pytest.raises(TypeError, match="sample 1 of the list is None"):
            function([b"abc", None])
    with pytest.raises(TypeError, match="element 1 is None"):
        jd.jit(lambda x: jd.decoders.image(x))([b"abc", None])


def test_keys_are_no_seeds():
    for key in (KEY, jax.random.PRNGKey(0)):
        with pytest.raises(
            TypeError, match=r"RNG: seed must be a number, got a key of jax\.random: pass it to functions as key="
        ):
            jd.random.RNG(key)


def test_windows_larger_than_images():
    for function in (jd.crop, jd.crop_mirror_normalize):
        with pytest.raises(RuntimeError, match='out_of_bounds_policy="pad" fills what is outside'):
            function(HWC, crop=(30, 30))
    with pytest.raises(RuntimeError, match='out_of_bounds_policy="pad" fills what is outside'):
        jd.slice(HWC, start=[0, 0], shape=[30, 30])


MISTAKES = {
    "type": lambda x: jd.resize(x > 1, size=(8, 8)),
    "no argument": lambda x: jd.color_space_conversion(x),
    "unknown argument": lambda x: jd.resize(x, size=(8, 8), interpolation=2),
    "unknown name": lambda x: jd.center_crop(x),
    "attribute": lambda x: x.cuda(),
    "operand": lambda x: jd.flip(x) << 1.5,
    "index": lambda x: (x.slice if isinstance(x, jd.Batch) else x)[1.5],
    "value": lambda x: jd.flip(x, horizontal="yes"),
    "list": lambda x: jd.flip([x, 3]),
    "number of values": lambda x: jd.stack(x, object()),
    "truth": lambda x: jd.flip(x) if x else x,
    "float": lambda x: float(x),
    "numpy": lambda x: np.linalg.norm(x, nonsense=1),
    "iteration": lambda x: [*x][0][0].nonsense,
    "device": lambda x: jd.flip(x, device="cuda"),
    "layout": lambda x: jd.reshape(x, layout="HWCC"),
}
PIPELINES = re.compile(r"\bDataNodes?\b|\bnode|pipeline definition|external_source|(?<![\w.])fn\.|created at")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages_speak_of_values(mistake):
    function = MISTAKES[mistake]
    for called in (function, jd.jit(function), jitted(lambda x: function(jd.batch(x)))):
        with pytest.raises((TypeError, ValueError, AttributeError, RuntimeError, IndexError)) as e:
            called(jd.batch(HWC, layout="HWC"))
        assert not PIPELINES.search(str(e.value)), str(e.value)


@pytest.mark.parametrize(("name", "available"), [("gpu:7", "cpu:0"), ("nonsense", "cpu:0")])
def test_missing_devices(name, available):
    with pytest.raises(ValueError, match=f"there is no device '{name}' here; JAX has .*{available}"):
        jd.batch(HWC).to(name)


def test_function_within_a_jax_function():
    """The inner function is compiled while the outer one is; both warn."""
    mirrored = jax_function(lambda x: jd.flip(x).jax())
    function = jd.jit(lambda x: mirrored(jd.flip(x)))
    texts = warnings_of(lambda: np.testing.assert_array_equal(function(CHW).numpy(), CHW))
    assert {is_chw_advice([text]) for text in texts} == {True}


def test_names_of_files_in_messages():
    for path in ("/nowhere/fn.images/a.jpg", "/nowhere/DataNodes/a.jpg"):
        with pytest.raises(RuntimeError, match=re.escape(path)):
            jd.io.file.read([path.encode()])

    def own_error(x):
        raise ValueError("my DataNode is in fn.foo")

    with pytest.raises(ValueError, match=r"^my DataNode is in fn\.foo"):
        jd.jit(own_error)(HWC)


RAGGED = jd.batch([np.zeros((4, 3, 3), np.uint8), np.zeros((5, 3, 3), np.uint8)])


@pytest.mark.parametrize(
    "function",
    [
        jnp.mean,
        lambda x: jnp.add(x, 1),
        jax.jit(jnp.asarray),
        jax.jit(lambda x: x.jax(pad=True)),
        jax.jit(lambda x: x.numpy()),
        jax.jit(lambda x: x.shapes),
        jax.jit(lambda x: x[0]),
        jax.jit(lambda x: x.samples()),
    ],
)
def test_ragged_batches_while_jax_traces(function):
    with pytest.raises(ValueError, match=r"the samples differ in shape, so they are not one array, .*resize or pad"):
        function(RAGGED)


def test_text_of_traced_ragged_batches():
    texts = []
    jax.jit(lambda x: texts.append(repr(x)))(RAGGED)
    assert texts == ["Batch(2 samples, ndim=3, dtype=uint8)"]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: jitted(jd.decoders.image)(HWC[:, 0, :, 0]),
            ValueError,
            "call it outside jax.jit, and pass its result",
        ),
        (lambda: jd.batch(HWC, layout="NHWC"), ValueError, "3 dimensions: leave out N, a layout is of one sample"),
        (lambda: jd.batch(HWC, layout="HWCX"), ValueError, "3 dimensions$"),
        (lambda: [*jd.readers.File(files=["a"])], TypeError, r"not iterable: next_epoch\(batch_size=\.\.\.\) iterates"),
        (
            lambda: jd.resize(HWC[..., 0], size=(3, 3)),
            ValueError,
            r"gray images need an axis of channels, image\[\.\.\., None\]$",
        ),
        (lambda: jd.flip(HWC[..., 0]), ValueError, r"gray images need an axis of channels, image\[\.\.\., None\]$"),
    ],
)
def test_remedies(call, error, says):
    with pytest.raises(error, match=says) as e:
        call()
    assert "external_source" not in str(e.value)
