"""Random numbers eagerly, in `jd.jit`, in `jax.jit` and in pipelines: how many a key draws, what they may be, equal
bits.

The operators and their arguments are those of the registry, so a new one needs a case here.
"""

import concurrent.futures
import copy
import functools
import inspect
import operator
import pathlib
import pickle
import threading

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import videos
from photos_of_values import FILES, images

import jaxdali.dynamic as jd
from jaxdali import fn, math, pipeline_def, types
from jaxdali._core.arguments import declared
from jaxdali.dynamic._singles import JaxTensor

KEY = jax.random.key(7)
N = 3
FIRST = np.stack([np.zeros(N, np.uint32), np.arange(N, dtype=np.uint32)], axis=1)  # keys for each sample
WAYS = {"eagerly": lambda f: f, "jd.jit": jd.jit, "jax.jit": jax.jit}


def function_of(module, name):
    return functools.reduce(getattr, name.split("."), module)


def exists(name):
    try:
        return bool(function_of(jd, name))
    except AttributeError:
        return False


OPERATORS = sorted(filter(exists, declared))
ARGUMENTS = {
    (name, a.name): a for name in OPERATORS for a in declared[name]().values() if a.per_sample and not a.is_input
}  # those that may differ from sample to sample
DRAWING = [
    n for n in OPERATORS if (p := inspect.signature(function_of(fn, n)).parameters.get("seed")) and p.default == -1
]

# --- every operator and every argument
# ----------------------------------------------------------------------------------

_rng = np.random.default_rng(5)
_MASK = np.zeros((N, 9, 8, 1), np.int32)
_MASK[:, 2:5, 1:4], _MASK[:, 6:, 5:] = 1, 2
VALUES = {
    "image": jd.batch(images((N, 12, 10, 3)), layout="HWC"),
    "volume": jd.batch(_rng.integers(0, 256, (N, 6, 7, 8, 2), np.uint8), layout="DHWC"),
    "frames": jd.batch(_rng.integers(0, 256, (N, 5, 4, 4, 3), np.uint8), layout="FHWC"),
    "bayer": _rng.integers(0, 256, (N, 6, 8), np.uint8),
    "boxes": np.tile(np.float32([[0.1, 0.2, 0.6, 0.7], [0.3, 0.1, 0.9, 0.8]]), (N, 1, 1)),
    "labels": np.tile(np.int32([1, 2]), (N, 1)),
    "points": _rng.random((N, 5, 3), np.float32),
    "plane": _rng.random((N, 5, 2), np.float32),
    "signal": _rng.standard_normal((N, 64)).astype(np.float32),
    "matrix": _rng.random((N, 6, 8), np.float32),
    "mask": jd.batch(_MASK, layout="HWC"),
    "number": np.arange(N, dtype=np.float32),
    "shapes": np.tile(np.int32([20, 30, 3]), (N, 1)),
    "kernel": np.ones((N, 3, 3), np.float32),
    "jpeg": FILES[:N],
    "sound": [
        golden.load(x["samples"][0]) for c in golden.cases("decoders.audio") if c.check == "values" for x in c.inputs
    ][:1]
    * N,
    "deflated": [b"\x44abcd\x04\x00\x50efghi"] * N,  # 17 bytes in a block of LZ4
}


def case(operator, *inputs, fixed=None, **drawn):
    """A call. `drawn`: arguments with their lowest and highest values, and for lists how many these are; integers where
    both limits are.
    """
    return operator, inputs, drawn, fixed or {}


RESIZED = {"resize": {}, "resize_crop_mirror": {"crop": (4, 4)}, "fast_resize_crop_mirror": {"crop": (4, 4)}}
RESIZES = [
    case(operator, "image", fixed={**fixed, **more}, **drawn)
    for operator, fixed in RESIZED.items()
    for more, drawn in (
        ({}, {"size": (5.0, 9.0, 2), "interp_type": (0, 2)}),
        ({}, {"resize_x": (5.0, 9.0), "resize_y": (5.0, 9.0), "min_filter": (0, 2), "mag_filter": (0, 2)}),
        ({}, {"resize_shorter": (5.0, 9.0), "max_size": (9.0, 12.0, 2)}),
        ({}, {"resize_longer": (5.0, 9.0), "roi_start": (0.0, 2.0, 2), "roi_end": (6.0, 9.0, 2)}),
    )
]
CROPS = [
    case(operator, "image", crop_w=(3.0, 6.0), crop_h=(3.0, 6.0), crop_pos_x=(0.0, 1.0), crop_pos_y=(0.0, 1.0), **more)
    for operator, more in (
        ("crop", {}),
        ("crop_mirror_normalize", {"mirror": (0, 1), "mean": (0.0, 9.0, 3), "std": (1.0, 2.0, 3)}),
        ("resize_crop_mirror", {"resize_x": (7.0, 9.0), "resize_y": (7.0, 9.0), "mirror": (0, 3)}),
        ("fast_resize_crop_mirror", {"resize_x": (7.0, 9.0), "resize_y": (7.0, 9.0), "mirror": (0, 3)}),
    )
]
CASES = [
    *RESIZES,
    *CROPS,
    case("resize_crop_mirror", "image", fixed={"size": (9, 9)}, crop=(3.0, 6.0, 2)),
    case("fast_resize_crop_mirror", "image", fixed={"size": (9, 9)}, crop=(3.0, 6.0, 2)),
    case("resize", "volume", fixed={"resize_x": 4.0, "resize_y": 5.0}, resize_z=(3.0, 6.0)),
    case("crop", "image", crop=(3.0, 6.0, 2)),
    case("crop", "volume", fixed={"crop_w": 4, "crop_h": 4}, crop_d=(2.0, 5.0), crop_pos_z=(0.0, 1.0)),
    case("crop_mirror_normalize", "image", crop=(3.0, 6.0, 2)),
    case(
        "crop_mirror_normalize",
        "volume",
        fixed={"crop_w": 4, "crop_h": 4, "output_layout": "DHWC"},
        crop_d=(2.0, 5.0),
        crop_pos_z=(0.0, 1.0),
    ),
    case("random.coin_flip", probability=(0.0, 1.0), shape=(1, 4, 2)),
    case("random.normal", mean=(0.0, 3.0), stddev=(0.5, 2.0), shape=(1, 4, 2)),
    case("random.uniform", range=lambda draw: jd.stack(low := draw(0.0, 3.0), low + 1.0), shape=(1, 4, 2)),
    case("random.uniform", values=(0.0, 3.0, 4)),
    case("random.beta", alpha=(0.5, 2.0), beta=(0.5, 2.0), shape=(1, 4, 2)),
    case("random.choice", "signal", shape=(1, 4, 2)),
    case("random.choice", 2, p=lambda draw: jd.stack(p := draw(0.2, 0.8), 1.0 - p)),
    case("random.key"),
    case("batch_permutation"),
    case(
        "decoders.image_crop",
        "jpeg",
        crop_w=(9.0, 20.0),
        crop_h=(9.0, 20.0),
        crop_pos_x=(0.0, 1.0),
        crop_pos_y=(0.0, 1.0),
        page=(0, 0),
    ),
    case("decoders.image_crop", "jpeg", crop=(9.0, 20.0, 2)),
    case("decoders.image", "jpeg", page=(0, 0)),
    case("decoders.image_random_crop", "jpeg", page=(0, 0)),
    case("decoders.image_slice", "jpeg", start=(0, 9, 2), shape=(9, 20, 2), page=(0, 0)),
    case("decoders.image_slice", "jpeg", rel_start=(0.0, 0.3, 2), rel_end=(0.5, 1.0, 2)),
    case("decoders.image_slice", "jpeg", start=(0, 9, 1), end=(20, 40, 1), axes=(0, 1, 1)),
    case("decoders.image_slice", "jpeg", rel_start=(0.0, 0.3, 2), rel_shape=(0.2, 0.5, 2)),
    case("decoders.audio", "sound", sample_rate=(4000.0, 9000.0)),
    case("decoders.inflate", "deflated", shape=(17, 17, 1)),
    case("decoders.inflate", "deflated", fixed={"shape": 17}, chunk_offsets=(0, 0, 1), chunk_sizes=(13, 13, 1)),
    case("decoders.video", "video", start_frame=(0, 3), end_frame=(5, 9), stride=(1, 2)),
    case("decoders.video", "video", sequence_length=(2, 4)),
    case("decoders.video", "video", frames=(0, 9, 3)),
    case("transforms.translation", offset=(0.0, 2.0, 2)),
    case("transforms.rotation", angle=(0.0, 90.0), center=(0.0, 2.0, 2)),
    case("transforms.rotation", angle=(0.0, 90.0), axis=(0.5, 1.0, 3)),
    case("transforms.scale", scale=(0.5, 2.0, 2), center=(0.0, 2.0, 2)),
    case("transforms.shear", shear=(0.0, 0.5, 2), center=(0.0, 2.0, 2)),
    case("transforms.shear", angles=(0.0, 30.0, 2)),
    case(
        "transforms.crop",
        from_start=(0.0, 1.0, 2),
        from_end=(2.0, 3.0, 2),
        to_start=(0.0, 1.0, 2),
        to_end=(4.0, 5.0, 2),
    ),
    case("audio_resample", "signal", in_rate=(8000.0, 9000.0), out_rate=(4000.0, 9000.0)),
    case("audio_resample", "signal", scale=(0.5, 2.0)),
    case("audio_resample", "signal", out_length=(20, 80)),
    case("bb_flip", "boxes", fixed={"ltrb": True}, horizontal=(0, 1), vertical=(0, 1)),
    case("bbox_paste", "boxes", ratio=(1.0, 2.0), paste_x=(0.0, 1.0), paste_y=(0.0, 1.0)),
    case("bbox_rotate", "boxes", angle=(0.0, 90.0), input_shape=(40, 60, 2), size=(40.0, 60.0, 2)),
    case("rotate", "image", fixed={"keep_size": True}, angle=(-30.0, 30.0)),
    case("rotate", "image", angle=(-30.0, 30.0), size=(5.0, 9.0, 2)),
    case("rotate", "volume", angle=(-30.0, 30.0), axis=(0.5, 1.0, 3)),
    case(
        "brightness_contrast",
        "image",
        brightness=(0.5, 2.0),
        brightness_shift=(0.0, 0.2),
        contrast=(0.5, 2.0),
        contrast_center=(0.0, 99.0),
    ),
    case("brightness", "image", brightness=(0.5, 2.0), brightness_shift=(0.0, 0.2)),
    case("contrast", "image", contrast=(0.5, 2.0), contrast_center=(0.0, 99.0)),
    case("color_twist", "image", brightness=(0.5, 2.0), contrast=(0.5, 2.0), hue=(0.0, 90.0), saturation=(0.5, 2.0)),
    case("hsv", "image", hue=(0.0, 90.0), saturation=(0.5, 2.0), value=(0.5, 2.0)),
    case("hue", "image", hue=(0.0, 90.0)),
    case("saturation", "image", saturation=(0.5, 2.0)),
    case(
        "coord_flip",
        "points",
        fixed={"layout": "xyz"},
        **{f"flip_{a}": (0, 1) for a in "xyz"},
        **{f"center_{a}": (0.0, 1.0) for a in "xyz"},
    ),
    case("coord_transform", "plane", M=(0.0, 1.0, 4), T=(0.0, 1.0, 2)),
    case("coord_transform", "plane", MT=(0.0, 1.0, 6)),
    case("debayer", "bayer", blue_position=(0, 1, 2)),
    case("erase", "image", anchor=(0.0, 3.0, 2), shape=(2.0, 4.0, 2), fill_value=(0.0, 9.0, 3)),
    case("filter", "image", "kernel", anchor=(0, 2, 2)),
    case("flip", "volume", horizontal=(0, 1), vertical=(0, 1), depthwise=(0, 1)),
    case("full", "number", shape=(1, 4, 2)),
    case("ones", shape=(1, 4, 2)),
    case("zeros", shape=(1, 4, 2)),
    case("gaussian_blur", "image", fixed={"window_size": 3}, sigma=(0.5, 2.0)),
    case("gaussian_blur", "matrix", window_size=lambda draw: 2 * draw(1, 2) + 1),
    case("grid_mask", "image", angle=(0.0, 1.0), ratio=(0.2, 0.8), shift_x=(0.0, 3.0), shift_y=(0.0, 3.0), tile=(3, 6)),
    case("jitter", "image", mask=(0, 1)),
    case("sphere", "image", mask=(0, 1)),
    case("water", "image", mask=(0, 1)),
    case("jpeg_compression_distortion", "image", quality=(5, 90)),
    case("laplacian", "image", scale=(0.5, 2.0), smoothing_size=(1, 1), window_size=(3, 3)),
    case(
        "multi_paste",
        "image",
        fixed={"output_size": (20, 20)},
        in_anchors=(0, 2, 2),
        shapes=(2, 5, 2),
        out_anchors=(0, 9, 2),
    ),
    case(
        "multi_paste",
        "image",
        in_ids=(0, N - 1, 1),
        in_anchors_rel=(0.0, 0.2, 2),
        shapes_rel=(0.2, 0.5, 2),
        out_anchors_rel=(0.0, 0.3, 2),
        output_size=(20, 30, 2),
    ),
    case("nonsilent_region", "signal", cutoff_db=(-9.0, -3.0), window_length=(8, 8), reference_power=(0.5, 1.0)),
    case("nonsilent_region", "signal", window_length=(8, 8), reset_interval=(64, 64)),
    case("normalize", "matrix", mean=(0.0, 1.0, 1, 1), stddev=(0.5, 1.0, 1, 1)),
    case("pad", "matrix", fill_value=(0.0, 3.0), align=(3, 5, 2)),
    case("pad", "matrix", axes=(0, 1, 1), shape=(9, 12, 1)),
    case(
        "paste",
        "image",
        fixed={"fill_value": 3},
        ratio=(1.0, 2.0),
        paste_x=(0.0, 1.0),
        paste_y=(0.0, 1.0),
        min_canvas_size=(9.0, 20.0),
    ),
    case("permute_batch", "image", indices=(0, N - 1)),
    case("preemphasis_filter", "signal", preemph_coeff=(0.2, 0.9)),
    case("random_bbox_crop", "boxes", crop_shape=(20, 30, 2), input_shape=(40, 60, 2)),
    case("random_crop_generator", "shapes"),
    case("random_resized_crop", "image", size=(5.0, 9.0, 2), interp_type=(0, 2)),
    case("random_resized_crop", "image", fixed={"size": (5, 6)}, min_filter=(0, 2), mag_filter=(0, 2)),
    case("reshape", "matrix", shape=(48, 48, 1)),
    case("reshape", "matrix", fixed={"src_dims": [0, 1]}, rel_shape=(1, 1, 2)),
    case("reinterpret", "matrix", shape=(48, 48, 1)),
    case("reinterpret", "matrix", rel_shape=(1, 1, 2)),
    case("roi_random_crop", crop_shape=(2, 5, 2), roi_start=(0, 9, 2), roi_end=(20, 30, 2), in_shape=(40, 50, 2)),
    case("roi_random_crop", crop_shape=(2, 5, 2), roi_start=(0, 9, 2), roi_shape=(9, 20, 2)),
    case("sequence_rearrange", "frames", new_order=(0, 4, 6)),
    case("slice", "image", start=(0, 3, 2), shape=(2, 5, 2)),
    case("slice", "image", start=(0, 3, 1), end=(4, 9, 1), axes=(0, 1, 1)),
    case("slice", "image", rel_start=(0.0, 0.3, 2), rel_end=(0.5, 1.0, 2)),
    case("slice", "image", rel_start=(0.0, 0.3, 2), rel_shape=(0.2, 0.5, 2)),
    case("ssd_random_crop", "image", "boxes", "labels"),
    case("tensor_resize", "matrix", sizes=(5.0, 9.0, 2), interp_type=(0, 2), alignment=(0.0, 1.0, 2)),
    case("tensor_resize", "matrix", scales=(0.5, 2.0, 2), min_filter=(0, 2), mag_filter=(0, 2)),
    case("tensor_resize", "matrix", fixed={"mode": "not_larger"}, sizes=(5.0, 9.0, 2), max_size=(9.0, 12.0, 2)),
    case("tensor_resize", "matrix", fixed={"sizes": [4, 5]}, roi_start=(0.0, 2.0, 2), roi_end=(4.0, 6.0, 2)),
    case("warp_affine", "image", matrix=(-0.2, 1.0, 6), size=(5.0, 9.0, 2)),
    case("experimental.warp_perspective", "image", matrix=(0.1, 1.0, 9), size=(5.0, 9.0, 2)),
    case("experimental.median_blur", "image", window_size=(3, 3, 2)),
    case("experimental.dilate", "image", mask_size=(3, 4, 2), anchor=(0, 2, 2)),
    case("experimental.erode", "image", mask_size=(3, 4, 2), anchor=(0, 2, 2)),
    case("noise.gaussian", "image", mean=(0.0, 3.0), stddev=(0.5, 9.0)),
    case(
        "noise.salt_and_pepper",
        "image",
        prob=(0.1, 0.5),
        salt_vs_pepper=(0.1, 0.9),
        salt_val=(200.0, 255.0),
        pepper_val=(0.0, 9.0),
    ),
    case("noise.shot", "image", factor=(1.0, 20.0)),
    case("segmentation.random_mask_pixel", "mask", foreground=(0, 1), threshold=(0.0, 0.9)),
    case("segmentation.random_mask_pixel", "mask", fixed={"foreground": 1}, value=(1, 2)),
    case("segmentation.random_object_bbox", "mask", foreground_prob=(0.2, 0.9), background=(0, 0), threshold=(1, 2, 3)),
    case("segmentation.random_object_bbox", "mask", classes=(1, 2, 2), class_weights=(0.2, 0.9, 2)),
]
OF_VOLUMES = {
    *((n, a) for n in ("resize_crop_mirror", "fast_resize_crop_mirror") for a in ("crop_d", "crop_pos_z", "resize_z")),
    *(("decoders.image_crop", a) for a in ("crop_d", "crop_pos_z")),
}  # which these operators do not take


def test_cases_are_complete():
    here = {(operator, a) for operator, _, drawn, _ in CASES for a in drawn}
    assert {*ARGUMENTS} - here == OF_VOLUMES
    assert {*DRAWING} <= {operator for operator, *_ in CASES}


def drawn_arguments(drawn, key, n):
    """Numbers for each sample, keyed by the names."""

    def draw(key, low, high, *shape):
        limits = (low - 0.4, high + 0.4) if isinstance(low, int) else (low, high)
        numbers = jd.random.uniform(range=limits, key=key, batch_size=n, **({"shape": shape} if shape else {}))
        return jd.cast(numbers, dtype=types.INT32) if isinstance(low, int) else numbers

    draws = [functools.partial(draw, jd.random.fold_in(key, i)) for i in range(len(drawn))]
    return {name: limits(d) if callable(limits) else d(*limits) for d, (name, limits) in zip(draws, drawn.items())}


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return pathlib.Path(videos.write(tmp_path_factory.mktemp("videos") / "a.mp4", 12, size=(32, 32))).read_bytes()


def program(operator, inputs, drawn, fixed):
    """The call as a function of values, a key for the arguments and, if the operator draws, keys."""
    function = function_of(jd, operator)

    def run(values, key, keys):
        samples, n = iter(values), len(values[0]) if values else N
        more = {"key": keys} if operator in DRAWING else {}
        more |= {} if values else {"batch_size": n}
        return function(
            *(next(samples) if isinstance(x, str) else x for x in inputs),
            **drawn_arguments(drawn, key, n),
            **fixed,
            **more,
        )

    return run


def by_pipeline(values, operator, inputs, drawn, fixed):
    """The samples of each output. Keys of two words are a pipeline's epochs and positions, so its first batch has those
    of `FIRST`.
    """
    numbers = drawn_arguments(drawn, KEY, N)

    def node(x):
        samples = [np.frombuffer(s, np.uint8) if isinstance(s, bytes) else s for s in x]
        return fn.external_source(lambda: samples, batch=True, layout=getattr(x, "layout", ""))

    @pipeline_def(batch_size=N, num_threads=2, device_id=None, seed=0)
    def definition():
        samples = iter(values)
        nodes = [node(next(samples)) if isinstance(x, str) else x for x in inputs]
        made = function_of(fn, operator)(*nodes, **{n: node(x) for n, x in numbers.items()}, **fixed)
        return tuple(made) if isinstance(made, list) else made

    return [
        [np.asarray(x) for x in output.as_cpu()] for output in definition(exec_pipelined=False, exec_async=False).run()
    ]


def bits(outputs):
    """Shape, type and bytes of each sample, with types that JAX has."""

    def of_sample(x):
        x = np.asarray(x)
        x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype))
        return x.shape, x.dtype, x.tobytes()

    return [list(map(of_sample, output)) for output in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


# What `jax.jit` has no program for, though all shapes are known: operators that read their inputs on the host, and
# tables of any length.
NO_PROGRAM = {n for n in OPERATORS if n.startswith("segmentation.")}
NO_PROGRAM |= {"debayer", "filter", "nonsilent_region", "random_crop_generator", "gaussian_blur-window_size"}


@pytest.mark.parametrize("call", CASES, ids=lambda call: "-".join((call[0], *call[2])))
def test_equal_bits(call, request):
    names = [x for x in call[1] if isinstance(x, str)]
    values = tuple([request.getfixturevalue("video")] * N if x == "video" else VALUES[x] for x in names)
    run, want = program(*call), bits(by_pipeline(values, *call))
    alone = run(values, KEY, FIRST)
    assert bits(alone) == want
    assert bits(jd.jit(run)(values, KEY, FIRST)) == want
    if not all(isinstance(x, (np.ndarray, jd.Batch)) for x in values):
        return
    known = all(x.is_dense for x in (alone if isinstance(alone, (list, tuple)) else [alone]))
    if known and not {call[0], "-".join((call[0], *call[2]))} & NO_PROGRAM:
        assert bits(jax.jit(run)(values, KEY, FIRST)) == want
    else:
        with pytest.raises(Exception, match=r"can't be part of a program|in a compiled program it must stay the same"):
            jax.block_until_ready(jax.jit(run)(values, KEY, FIRST))


@pytest.mark.parametrize(
    "call", [c for c in CASES if c[0] in DRAWING and c[1]], ids=lambda call: "-".join((call[0], *call[2]))
)
def test_draws_for_each_sample(call):
    """Of one key, sample i uses `fold_in(key, i)`, whatever draws for it."""
    run, values = program(*call), tuple(VALUES[x] for x in call[1] if isinstance(x, str))
    each = jax.vmap(jax.random.fold_in, (None, 0))(KEY, np.arange(N))
    want = bits(run(values, KEY, each))
    assert bits(run(values, KEY, KEY)) == want
    assert bits(jd.jit(run)(values, KEY, KEY)) == want
    if call[0].startswith("noise"):
        assert bits(jax.jit(run)(values, KEY, KEY)) == want


# --- one number -------------------------------------------------------------------------------------------------------

IMAGES = VALUES["image"]
ALONE = {  # what draws without a batch
    "random.coin_flip": {},
    "random.uniform": {"range": (2.0, 5.0)},
    "random.normal": {"shape": [3]},
    "random.beta": {"alpha": 2.0},
    "random.choice": {},
    "random.key": {},
}


def test_all_distributions_are_here():
    assert {n for n in DRAWING if n.startswith("random.")} == {*ALONE}


@pytest.mark.parametrize("operator", ALONE)
def test_one_key_draws_one_number(operator):
    """Also beside a batch in the same program; it is the first of those that the key draws for n samples."""
    function = function_of(jd, operator)
    inputs = (5,) if operator == "random.choice" else ()
    alone = lambda x, key: (jd.flip(x), function(*inputs, key=key, **ALONE[operator]))
    want = np.asarray(function(*inputs, key=KEY, batch_size=2, **ALONE[operator])[0])
    for way, compiled in WAYS.items():
        images, number = compiled(alone)(IMAGES, KEY)
        assert (type(images), images.shapes) == (jd.Batch, IMAGES.shapes), way
        assert isinstance(number, (jd.Tensor, JaxTensor))
        assert (number.shape, number.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(number.jax(), want)
        np.testing.assert_array_equal(jnp.asarray(number), want)


@pytest.mark.parametrize(("operator", "name"), ARGUMENTS)
def test_one_number_for_a_batch(operator, name):
    a, function = ARGUMENTS[operator, name], function_of(jd, operator)
    shape = {"shape": [a.lengths[0] if a.lengths else 2]} if a.many else {}

    def run(x, key):
        drawn = jd.random.uniform(range=(0.0, 1.0), key=key, **shape)
        return function(x, **{name: drawn})

    line = run.__code__.co_firstlineno + 2
    for compiled in WAYS.values():
        with pytest.raises(ValueError, match=rf"^{operator}: argument {name} is one value, .* for a batch of 3 ") as e:
            compiled(run)(IMAGES, KEY)
        assert all(
            way in str(e.value)
            for way in ("batch_size=len(images)", "jd.random.broadcast(x)", f"test_one_key.py:{line})")
        )


USES = {  # of one number, by a batch
    "argument": lambda x, u, key: jd.rotate(x, angle=u, keep_size=True),
    "list": lambda x, u, key: jd.warp_affine(x, matrix=[1.0, 0.0, u, 0.0, 1.0, 3.0]),
    "arithmetic": lambda x, u, key: jd.rotate(x, angle=2 * u - 1.0, keep_size=True),
    "comparison": lambda x, u, key: jd.flip(x, horizontal=jd.cast(u > 15, dtype=types.INT32)),
    "mathematics": lambda x, u, key: jd.rotate(x, angle=math.sqrt(u), keep_size=True),
    "subscript": lambda x, u, key: jd.brightness(x, brightness=jd.stack(u, u)[1]),
    "vector": lambda x, u, key: jd.warp_affine(x, matrix=jd.stack(u, u, u, u, u, u)),
    "operand": lambda x, u, key: jd.cast(x, dtype=types.FLOAT) * u,
    "input": lambda x, u, key: jd.stack(jd.reductions.sum(jd.cast(x, dtype=types.FLOAT)), u),
    "draw": lambda x, u, key: jd.random.normal(mean=u, key=key, batch_size=len(x)),
}


def draw(key):
    return jd.random.uniform(range=(0.0, 30.0), key=key)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_one_number_for_all(use, way):
    """It serves a batch when it is broadcast, and then as the same number for each sample does."""

    def refused(x, key):
        return USES[use](x, draw(key), key)

    def run(x, key):
        return USES[use](x, jd.random.broadcast(draw(key)), key)

    with pytest.raises(
        ValueError, match=r"is one value, drawn with one key, for a batch of 3 samples: .* jd\.random\.broadcast"
    ):
        WAYS[way](refused)(IMAGES, KEY)
    want = jd.jit(USES[use])(IMAGES, np.full(N, draw(KEY), np.float32), KEY)
    assert bits(WAYS[way](run)(IMAGES, KEY)) == bits(want)
    # One number is one for one sample.
    assert bits(WAYS[way](refused)(IMAGES[:1], KEY)) == bits(WAYS[way](run)(IMAGES[:1], KEY))


@pytest.mark.parametrize("function", [operator.add, operator.truediv, operator.gt, operator.eq])
def test_operators_of_arrays_of_jax(function):
    """An array is a batch beside a drawn number, on both sides; beside one for all, an array of JAX has JAX's
    operators.
    """
    x = IMAGES.numpy()
    for run in (lambda x, key: function(x, draw(key)), lambda x, key: function(draw(key), x)):
        for compiled, array in ((jax.jit, x), (lambda f: f, x), (lambda f: f, jnp.asarray(x))):
            with pytest.raises(ValueError, match="is one value, drawn with one key, for a batch of 3 samples"):
                compiled(run)(array, KEY)
    got = jax.jit(lambda x, key: function(x.astype(jnp.float32), jd.random.broadcast(draw(key))))(x, KEY)
    np.testing.assert_allclose(got, function(x.astype(np.float32), np.asarray(draw(KEY))), rtol=1e-6)
    assert isinstance(jax.jit(lambda key: function(jnp.float32(3), draw(key)))(KEY), JaxTensor)
    vector = lambda key: jd.random.uniform(range=(1.0, 2.0), shape=[3], key=key)  # beside an array of as many numbers
    for run in (lambda x, key: function(x, vector(key)), lambda x, key: function(vector(key), x)):
        np.testing.assert_array_equal(jax.jit(run)(np.ones(3, np.float32), KEY), run(np.ones(3, np.float32), KEY))
    made = jax.jit(vector)(KEY)
    np.testing.assert_array_equal(function(made, np.asarray(made)), function(np.asarray(made), np.asarray(made)))


def test_derived_values_are_drawn():
    """Whatever is made of them, but not what Python and NumPy take out of them."""
    number = draw(KEY)
    numbers = jd.random.uniform(shape=[2], key=KEY)
    made = [
        -number,
        abs(number),
        number.astype(int),
        number.reshape(1)[0],
        np.sqrt(number),
        numbers[0],
        *numbers,
        numbers.max(),
    ]
    for x in (*made, jd.tensor(number), pickle.loads(pickle.dumps(number)), copy.copy(number)):
        with pytest.raises(ValueError, match="is one value"):
            jd.rotate(IMAGES, angle=x)
    want = bits(jd.rotate(IMAGES, angle=float(number), keep_size=True))
    for x in (number.item(), np.asarray(number), number.tolist(), number.jax(), jd.random.broadcast(number)):
        assert bits(jd.rotate(IMAGES, angle=x, keep_size=True)) == want
    for x in (3.0, np.float32(3), jd.tensor(np.float32(3))):  # was not drawn
        assert jd.random.broadcast(x) == 3
        jd.rotate(IMAGES, angle=x)


def test_samples_of_one_key():
    """A crop of one image is one value as well, and so is an argument that must be the same for all samples."""
    crop = lambda x, image, key: jd.cat(x, jd.random_resized_crop(image, size=(12, 10), key=key))
    image = jd.tensor(IMAGES[1], layout="HWC")
    for compiled in (lambda f: f, jd.jit):
        with pytest.raises(ValueError, match="cat: input 1 is one value, drawn with one key"):
            compiled(crop)(IMAGES, image, KEY)
    with pytest.raises(ValueError, match="random_resized_crop: argument num_attempts is one value, drawn with one key"):
        jd.random_resized_crop(IMAGES, size=(4, 4), num_attempts=jd.random.coin_flip(key=KEY) + 1, key=KEY)
    with pytest.raises(ValueError, match=r"batch_permutation: .*pass batch_size=len\(images\)"):
        jd.jit(lambda x, key: jd.permute_batch(x, indices=jd.batch_permutation(key=key)))(IMAGES, KEY)
    with pytest.raises(TypeError, match=r"broadcast takes a single value, got a batch .*test_one_key\.py"):
        jd.random.broadcast(IMAGES)


def test_one_number_in_conditionals():
    def flipped(x, key):
        if jd.random.coin_flip(key=key) > 0:
            x = jd.flip(x)
        return x

    def turned(x, which, key):
        angle = 0.0
        if which > 0:
            angle = jd.random.uniform(key=key)
        return jd.rotate(x, angle=angle)

    def each(x, key):
        if jd.random.coin_flip(key=key, batch_size=len(x)) > 0:
            x = jd.flip(x)
        return x

    with pytest.raises(ValueError, match="if: the condition is one value, drawn with one key"):
        jd.jit(flipped, enable_conditionals=True)(IMAGES, KEY)
    with pytest.raises(ValueError, match="if: input 0 is one value, drawn with one key"):
        jd.jit(turned, enable_conditionals=True)(IMAGES, np.arange(N), KEY)
    want = jd.flip(IMAGES, horizontal=jd.random.coin_flip(key=KEY, batch_size=N))
    assert bits(jd.jit(each, enable_conditionals=True)(IMAGES, KEY)) == bits(want)


# --- keys, and numbers of samples -------------------------------------------------------------------------------------

EACH = jax.random.split(jax.random.key(3), N)
RAW = jax.random.key_data(EACH)
FORMS = {
    "array": (EACH,),
    "old array": (RAW, np.asarray(RAW)),
    "list": (list(EACH), tuple(EACH), list(RAW)),
    "one": (jax.random.key(3), jax.random.PRNGKey(3), np.asarray(jax.random.PRNGKey(3))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_keys(form):
    for keys in FORMS[form]:
        for compiled in WAYS.values():
            got = compiled(lambda x, keys: jd.random_resized_crop(x, size=(4, 4), key=keys))(IMAGES, keys)
            assert bits(got) == bits(
                jd.random_resized_crop(IMAGES, size=(4, 4), key=EACH if form != "one" else jax.random.key(3))
            )


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_generators_of_keys(implementation):
    key = jax.random.key(3, impl=implementation)
    run = lambda key: (jd.random.uniform(key=key), jd.random.uniform(key=jd.random.split(key, 2)))
    one, two = run(key)
    for compiled in WAYS.values():
        again = compiled(run)(key)
        assert [np.asarray(x).tolist() for x in again] == [one.tolist(), two.numpy().tolist()]
    if implementation != "unsafe_rbg":  # raw keys say nothing but their length
        assert jd.random.uniform(key=jax.random.PRNGKey(3, impl=implementation)) == one


def test_derived_keys():
    """`split`, `fold_in` and subscripts, of one key and of keys for each sample."""

    def run(x, key, keys):
        first, *_, last = jd.random.split(key, 3)
        a, b = jd.random.split(keys)
        which = (
            first,
            last,
            jd.random.split(key, 3)[-2],
            keys[1],
            jd.random.fold_in(keys, 5),
            a,
            b,
            jd.random.fold_in(b, 2),
        )
        crops = [jd.random_resized_crop(x, size=(4, 4), key=k) for k in which]
        crops += [jd.random_resized_crop(x, size=(4, 4), key=[jd.random.fold_in(key, i) for i in range(len(x))])]
        return [*crops, jd.random.uniform(key=keys), jd.random.uniform(key=key, batch_size=len(keys))]

    want = [bits(y) for y in run(IMAGES, KEY, EACH)]
    for compiled in WAYS.values():
        assert [bits(y) for y in compiled(run)(IMAGES, KEY, EACH)] == want
    with pytest.raises(ValueError, match="there are 2 keys for 3 samples"):
        jd.jit(lambda x, key: jd.random_resized_crop(x, size=(4, 4), key=jd.random.split(key)))(IMAGES, KEY)


def test_number_of_samples_by_threads():
    """Which a function asks for while it is traced, in each of them."""
    for _ in range(5):
        drawn, start = jd.jit(lambda key: jd.random.uniform(key=key, batch_size=N)), threading.Barrier(4)

        def call(_, drawn=drawn, start=start):
            start.wait()
            return drawn(KEY).numpy()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(call, range(4)))
        assert all(np.array_equal(x, results[0]) for x in results)


@pytest.mark.parametrize("key", [0, (slice(None), slice(None), 0), (Ellipsis, 1), (slice(None), None, 0)], ids=str)
def test_layouts_of_subscripts(key):
    def function(k):
        return jd.reshape(jd.random.uniform(key=k, shape=[2, 3, 4]), layout="HWC")[key]

    layouts = []
    jax.jit(lambda k: layouts.append(function(k).layout))(KEY)
    assert layouts == [function(KEY).layout]


def test_number_of_samples():
    """`len` of a batch, of keys, and of what has as many samples as there are keys."""
    zeros = lambda x: jd.zeros(shape=[1], batch_size=len(x))
    assert len(jd.jit(lambda x: zeros(2 * x[:2]))(IMAGES)) == N
    for x in (IMAGES, FILES, [IMAGES[0][:5], IMAGES[1]]):
        assert len(jd.jit(zeros)(x)) == len(x)
    assert len(jd.jit(zeros)(EACH)) == len(jd.jit(lambda keys: zeros(jd.random.coin_flip(key=keys)))(EACH)) == N
    with pytest.raises(TypeError, match=r"len\(\) of a single value.*leave out batch_size="):
        jd.jit(zeros)(FILES[0])

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def definition():
        return fn.zeros(shape=[len(fn.random.coin_flip())])

    with pytest.raises(TypeError, match=r"len\(\) of a DataNode"):
        definition().build()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda x: np.frombuffer(x, np.uint8)])
def test_single_files(kind):
    """By position, by name and several; what is made of one is one sample."""
    first, second = jd.decoders.image(FILES[0]), jd.decoders.image(FILES[1])
    one = jd.jit(jd.decoders.image)(kind(FILES[0]))
    pair = jd.jit(lambda image, mask: (jd.decoders.image(image), jd.decoders.image(mask)))
    for found in ((one, second), pair(kind(FILES[0]), kind(FILES[1])), pair(kind(FILES[0]), mask=kind(FILES[1]))):
        assert [(type(x), x.layout) for x in found] == [(jd.Tensor, "HWC")] * 2
        np.testing.assert_array_equal(found[0], first)
        np.testing.assert_array_equal(found[1], second)
    beside = jd.jit(lambda one, many: (jd.decoders.image(one), jd.decoders.image(many)))(kind(FILES[0]), FILES[:2])
    np.testing.assert_array_equal(beside[0], beside[1][0])
    # A tuple of files is a batch.
    assert jd.jit(jd.decoders.image)((FILES[0], FILES[1])).shapes == [first.shape, second.shape]
    key, crop = jax.random.key(3), lambda x, key: jd.random_resized_crop(jd.decoders.image(x), size=(4, 4), key=key)
    np.testing.assert_array_equal(jd.jit(crop)(kind(FILES[0]), key), crop(FILES[0], key))
