"""Random numbers eagerly, in `jd.jit`, in `jax.jit` and in pipelines: how many a key draws, and equal bits everywhere.

The operators and their arguments come from the registry, so a new one needs a case in `CASES`.
"""

import concurrent.futures
import copy
import functools
import inspect
import operator
import pathlib
import pickle
import threading

import counts
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
from jaxdali.dynamic import _numbers
from jaxdali.dynamic._singles import JaxTensor

KEY = jax.random.key(7)
N = 3
SAMPLE_KEYS = np.stack([np.zeros(N, np.uint32), np.arange(N, dtype=np.uint32)], axis=1)  # raw keys, one per sample
COMPILERS = {"eagerly": lambda f: f, "jd.jit": jd.jit, "jax.jit": jax.jit}


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
}  # the arguments that may differ from sample to sample
DRAWING = [
    n for n in OPERATORS if (p := inspect.signature(function_of(fn, n)).parameters.get("seed")) and p.default == -1
]

# --- every operator and every argument --------------------------------------------------------------------------------

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
    """A call of an operator.

    Args:
      inputs: names in `VALUES`.
      fixed: arguments that are the same for all samples.
      drawn: arguments that are drawn for each sample: (lowest value, highest value, *shape), or a function of `draw`.
        They are integers if both limits are.
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
    case(
        "decoders.image_patches",
        "jpeg",
        fixed={"patch_size": 4},
        size=lambda draw: 4 * draw(2, 5, 2),
        interp_type=(0, 2),
        mean=(0.0, 9.0, 3),
        std=(1.0, 2.0, 3),
        segments=(1, 9, 1),
    ),
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
    case("patchify", "image", fixed={"patch_size": 1}, mean=(0.0, 9.0, 3), std=(1.0, 2.0, 3)),
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
VOLUME_ARGUMENTS = {
    *((n, a) for n in ("resize_crop_mirror", "fast_resize_crop_mirror") for a in ("crop_d", "crop_pos_z", "resize_z")),
    *(("decoders.image_crop", a) for a in ("crop_d", "crop_pos_z")),
}  # arguments for volumes, which these operators don't accept


def test_cases_are_complete():
    tested_arguments = {(operator, a) for operator, _, drawn, _ in CASES for a in drawn}
    assert {*ARGUMENTS} - tested_arguments == VOLUME_ARGUMENTS, "each argument per sample needs a case in CASES"
    assert {*DRAWING} <= {operator for operator, *_ in CASES}, "each random operator needs a case in CASES"


def drawn_arguments(drawn, key, n):
    """Draws the arguments of a case for n samples, by name."""

    def draw(key, low, high, *shape):
        limits = (low - 0.4, high + 0.4) if isinstance(low, int) else (low, high)
        numbers = jd.random.uniform(range=limits, key=key, batch_size=n, **({"shape": shape} if shape else {}))
        return jd.cast(numbers, dtype=types.INT32) if isinstance(low, int) else numbers

    draws = [functools.partial(draw, jd.random.fold_in(key, i)) for i in range(len(drawn))]
    return {name: limits(d) if callable(limits) else d(*limits) for d, (name, limits) in zip(draws, drawn.items())}


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return pathlib.Path(videos.write(tmp_path_factory.mktemp("videos") / "a.mp4", 12, size=(32, 32))).read_bytes()


def make_call(operator, inputs, drawn, fixed):
    """The call of a case as a function of values, a key for the drawn arguments, and keys for the operator if it draws."""
    function = function_of(jd, operator)

    def run(values, key, keys):
        samples, n = iter(values), len(values[0]) if values else N
        options = {"key": keys} if operator in DRAWING else {}
        options |= {} if values else {"batch_size": n}
        return function(
            *(next(samples) if isinstance(x, str) else x for x in inputs),
            **drawn_arguments(drawn, key, n),
            **fixed,
            **options,
        )

    return run


def run_in_pipeline(values, operator, inputs, drawn, fixed):
    """The samples of each output of the same call in a pipeline.

    A pipeline keys its random numbers by epoch and position, which are the two words of a raw key. So the keys of its
    first batch are `SAMPLE_KEYS`.
    """
    numbers = drawn_arguments(drawn, KEY, N)

    def node(x):
        samples = [np.frombuffer(s, np.uint8) if isinstance(s, bytes) else s for s in x]
        return fn.external_source(lambda: samples, batch=True, layout=getattr(x, "layout", ""))

    @pipeline_def(batch_size=N, num_threads=2, device_id=None, seed=0)
    def definition():
        samples = iter(values)
        nodes = [node(next(samples)) if isinstance(x, str) else x for x in inputs]
        outputs = function_of(fn, operator)(*nodes, **{n: node(x) for n, x in numbers.items()}, **fixed)
        return tuple(outputs) if isinstance(outputs, list) else outputs

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


# Operators that can't be part of a program of `jax.jit`, although all shapes are known: they have tables of any length.
NO_PROGRAM = {"gaussian_blur-window_size"}


@pytest.mark.parametrize("call", CASES, ids=lambda call: "-".join((call[0], *call[2])))
def test_equal_bits(call, request):
    names = [x for x in call[1] if isinstance(x, str)]
    values = tuple([request.getfixturevalue("video")] * N if x == "video" else VALUES[x] for x in names)
    run, expected = make_call(*call), bits(run_in_pipeline(values, *call))
    outputs = run(values, KEY, SAMPLE_KEYS)
    assert bits(outputs) == expected
    assert bits(jd.jit(run)(values, KEY, SAMPLE_KEYS)) == expected
    if not all(isinstance(x, (np.ndarray, jd.Batch)) for x in values):
        return
    has_static_shape = all(x.is_dense for x in (outputs if isinstance(outputs, (list, tuple)) else [outputs]))
    if has_static_shape and not {call[0], "-".join((call[0], *call[2]))} & NO_PROGRAM:
        assert bits(jax.jit(run)(values, KEY, SAMPLE_KEYS)) == expected
    else:
        with pytest.raises(Exception, match=r"can't be part of a program|in a compiled program it must stay the same"):
            jax.block_until_ready(jax.jit(run)(values, KEY, SAMPLE_KEYS))


@pytest.mark.many
@pytest.mark.filterwarnings("ignore:.*in Pillow this number has another meaning")
@pytest.mark.parametrize(
    "call", [c for c in CASES if c[2] and c[0] != "permute_batch"], ids=lambda call: "-".join((call[0], *call[2]))
)
def test_numbers_as_constants_and_values(call, request, monkeypatch):
    """A number for all samples that is passed as a value has the result of a constant, to the bit."""
    operator, inputs, drawn, fixed = call
    names = [x for x in inputs if isinstance(x, str)]
    values = [request.getfixturevalue("video")] * N if "video" in names else [VALUES[x] for x in names]
    options = {"key": SAMPLE_KEYS} if operator in DRAWING else {}
    options |= {} if names else {"batch_size": N}
    numbers = {n: np.asarray(x)[0].tolist() for n, x in drawn_arguments(drawn, KEY, N).items()}
    monkeypatch.setattr(_numbers, "MAX_CONSTANTS", 0)
    monkeypatch.setattr(_numbers, "_are_equal", lambda a, b: results.append((a, b)))
    results = []
    function_of(jd, operator)(*([values] if "video" in names else values or inputs), **numbers, **fixed, **options)
    assert len(results) >= sum(x is not None for x in map(_numbers._as_array, numbers.values()))
    for as_value, as_constant in results:
        assert bits(as_value) == bits(as_constant)


def test_signs_of_zero_and_nans_as_arguments():
    ones = jd.batch(np.ones((2, 3), np.float32))
    for zero in (0.0, -0.0, np.float32(0), np.float32(-0.0), types.Constant(0.0), types.Constant(-0.0)):
        expected = np.copysign(np.inf, getattr(zero, "value", zero))
        np.testing.assert_array_equal((ones / zero).numpy(), np.full((2, 3), expected))
    jd.pad(ones, fill_value=float("nan"), shape=[5], axes=[0])
    with counts.compilations() as compiled:
        padded = jd.pad(ones, fill_value=float("nan"), shape=[5], axes=[0])
    np.testing.assert_array_equal(padded.numpy(), [[1, 1, 1, np.nan, np.nan]] * 2)
    assert not compiled


@pytest.mark.parametrize(
    "call", [c for c in CASES if c[0] in DRAWING and c[1]], ids=lambda call: "-".join((call[0], *call[2]))
)
def test_draws_for_each_sample(call):
    """With one key, sample i uses `fold_in(key, i)` in every operator."""
    run, values = make_call(*call), tuple(VALUES[x] for x in call[1] if isinstance(x, str))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, np.arange(N))
    expected = bits(run(values, KEY, keys))
    assert bits(run(values, KEY, KEY)) == expected
    assert bits(jd.jit(run)(values, KEY, KEY)) == expected
    if call[0].startswith("noise"):
        assert bits(jax.jit(run)(values, KEY, KEY)) == expected


# --- one number -------------------------------------------------------------------------------------------------------

IMAGES = VALUES["image"]
DISTRIBUTIONS = {  # operators that draw without a batch, with arguments
    "random.coin_flip": {},
    "random.uniform": {"range": (2.0, 5.0)},
    "random.normal": {"shape": [3]},
    "random.beta": {"alpha": 2.0},
    "random.choice": {},
    "random.key": {},
}


def test_all_distributions_are_here():
    assert {n for n in DRAWING if n.startswith("random.")} == {*DISTRIBUTIONS}


@pytest.mark.parametrize("operator", DISTRIBUTIONS)
def test_one_key_draws_one_number(operator):
    """Also in a program with a batch. The number is the first of those that the key draws for n samples."""
    function = function_of(jd, operator)
    inputs = (5,) if operator == "random.choice" else ()
    flip_and_draw = lambda x, key: (jd.flip(x), function(*inputs, key=key, **DISTRIBUTIONS[operator]))
    expected = np.asarray(function(*inputs, key=KEY, batch_size=2, **DISTRIBUTIONS[operator])[0])
    for compiler_name, compiled in COMPILERS.items():
        images, number = compiled(flip_and_draw)(IMAGES, KEY)
        assert (type(images), images.shapes) == (jd.Batch, IMAGES.shapes), compiler_name
        assert isinstance(number, (jd.Tensor, JaxTensor))
        assert (number.shape, number.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(number.jax(), expected)
        np.testing.assert_array_equal(jnp.asarray(number), expected)


@pytest.mark.parametrize(("operator", "name"), ARGUMENTS)
def test_one_number_for_a_batch(operator, name):
    a, function = ARGUMENTS[operator, name], function_of(jd, operator)
    shape = {"shape": [a.lengths[0] if a.lengths else 2]} if a.many else {}

    def run(x, key):
        drawn = jd.random.uniform(range=(0.0, 1.0), key=key, **shape)
        return function(x, **{name: drawn})

    line = run.__code__.co_firstlineno + 2
    for compiled in COMPILERS.values():
        with pytest.raises(ValueError, match=rf"^{operator}: argument {name} is one value, .* for a batch of 3 ") as e:
            compiled(run)(IMAGES, KEY)
        assert all(
            advice in str(e.value)
            for advice in ("batch_size=len(images)", "jd.random.broadcast(x)", f"test_one_key.py:{line})")
        )


USES = {  # uses of one number `u` in calls with a batch
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


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("use", USES)
def test_one_number_for_all(use, compiler):
    """A batch accepts a drawn number only if it is broadcast. The result is that of equal numbers for all samples."""

    def use_drawn(x, key):
        return USES[use](x, draw(key), key)

    def use_broadcast(x, key):
        return USES[use](x, jd.random.broadcast(draw(key)), key)

    with pytest.raises(
        ValueError, match=r"is one value, drawn with one key, for a batch of 3 samples: .* jd\.random\.broadcast"
    ):
        COMPILERS[compiler](use_drawn)(IMAGES, KEY)
    expected = jd.jit(USES[use])(IMAGES, np.full(N, draw(KEY), np.float32), KEY)
    assert bits(COMPILERS[compiler](use_broadcast)(IMAGES, KEY)) == bits(expected)
    # A batch of one sample accepts it in both forms.
    assert bits(COMPILERS[compiler](use_drawn)(IMAGES[:1], KEY)) == bits(
        COMPILERS[compiler](use_broadcast)(IMAGES[:1], KEY)
    )


@pytest.mark.parametrize("function", [operator.add, operator.truediv, operator.gt, operator.eq])
def test_operators_of_arrays_of_jax(function):
    """With a drawn number, an array on either side is a batch. With a broadcast number, JAX's operators apply."""
    x = IMAGES.numpy()
    for run in (lambda x, key: function(x, draw(key)), lambda x, key: function(draw(key), x)):
        for compiled, array in ((jax.jit, x), (lambda f: f, x), (lambda f: f, jnp.asarray(x))):
            with pytest.raises(ValueError, match="is one value, drawn with one key, for a batch of 3 samples"):
                compiled(run)(array, KEY)
    total = jax.jit(lambda x, key: function(x.astype(jnp.float32), jd.random.broadcast(draw(key))))(x, KEY)
    np.testing.assert_allclose(total, function(x.astype(np.float32), np.asarray(draw(KEY))), rtol=1e-6)
    assert isinstance(jax.jit(lambda key: function(jnp.float32(3), draw(key)))(KEY), JaxTensor)
    vector = lambda key: jd.random.uniform(range=(1.0, 2.0), shape=[3], key=key)
    for run in (lambda x, key: function(x, vector(key)), lambda x, key: function(vector(key), x)):
        np.testing.assert_array_equal(jax.jit(run)(np.ones(3, np.float32), KEY), run(np.ones(3, np.float32), KEY))
    drawn = jax.jit(vector)(KEY)
    np.testing.assert_array_equal(function(drawn, np.asarray(drawn)), function(np.asarray(drawn), np.asarray(drawn)))


def test_derived_values_are_drawn():
    """Values computed from a drawn one are drawn, too; plain numbers and arrays taken out of it are not."""
    number = draw(KEY)
    numbers = jd.random.uniform(shape=[2], key=KEY)
    derived = [
        -number,
        abs(number),
        number.astype(int),
        number.reshape(1)[0],
        np.sqrt(number),
        numbers[0],
        *numbers,
        numbers.max(),
    ]
    for x in (*derived, jd.tensor(number), pickle.loads(pickle.dumps(number)), copy.copy(number)):
        with pytest.raises(ValueError, match="is one value"):
            jd.rotate(IMAGES, angle=x)
    expected = bits(jd.rotate(IMAGES, angle=float(number), keep_size=True))
    for x in (number.item(), np.asarray(number), number.tolist(), number.jax(), jd.random.broadcast(number)):
        assert bits(jd.rotate(IMAGES, angle=x, keep_size=True)) == expected
    for x in (3.0, np.float32(3), jd.tensor(np.float32(3))):  # not drawn
        assert jd.random.broadcast(x) == 3
        jd.rotate(IMAGES, angle=x)


def test_samples_of_one_key():
    """A random crop of one image is a drawn value, too. Arguments that must be equal for all samples refuse one."""
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
    def flip_all(x, key):
        if jd.random.coin_flip(key=key) > 0:
            x = jd.flip(x)
        return x

    def rotate_some(x, condition, key):
        angle = 0.0
        if condition > 0:
            angle = jd.random.uniform(key=key)
        return jd.rotate(x, angle=angle)

    def flip_each(x, key):
        if jd.random.coin_flip(key=key, batch_size=len(x)) > 0:
            x = jd.flip(x)
        return x

    with pytest.raises(ValueError, match="if: the condition is one value, drawn with one key"):
        jd.jit(flip_all, enable_conditionals=True)(IMAGES, KEY)
    with pytest.raises(ValueError, match="if: input 0 is one value, drawn with one key"):
        jd.jit(rotate_some, enable_conditionals=True)(IMAGES, np.arange(N), KEY)
    expected = jd.flip(IMAGES, horizontal=jd.random.coin_flip(key=KEY, batch_size=N))
    assert bits(jd.jit(flip_each, enable_conditionals=True)(IMAGES, KEY)) == bits(expected)


# --- keys, and numbers of samples -------------------------------------------------------------------------------------

KEYS = jax.random.split(jax.random.key(3), N)
RAW_KEYS = jax.random.key_data(KEYS)
FORMS = {
    "array": (KEYS,),
    "old array": (RAW_KEYS, np.asarray(RAW_KEYS)),
    "list": (list(KEYS), tuple(KEYS), list(RAW_KEYS)),
    "one": (jax.random.key(3), jax.random.PRNGKey(3), np.asarray(jax.random.PRNGKey(3))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_keys(form):
    for keys in FORMS[form]:
        for compiled in COMPILERS.values():
            crops = compiled(lambda x, keys: jd.random_resized_crop(x, size=(4, 4), key=keys))(IMAGES, keys)
            assert bits(crops) == bits(
                jd.random_resized_crop(IMAGES, size=(4, 4), key=KEYS if form != "one" else jax.random.key(3))
            )


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_generators_of_keys(implementation):
    key = jax.random.key(3, impl=implementation)
    run = lambda key: (jd.random.uniform(key=key), jd.random.uniform(key=jd.random.split(key, 2)))
    single, pair = run(key)
    for compiled in COMPILERS.values():
        numbers = compiled(run)(key)
        assert [np.asarray(x).tolist() for x in numbers] == [single.tolist(), pair.numpy().tolist()]
    if implementation != "unsafe_rbg":  # raw keys only show their length, which rbg and unsafe_rbg have in common
        assert jd.random.uniform(key=jax.random.PRNGKey(3, impl=implementation)) == single


def test_derived_keys():
    """`split`, `fold_in` and subscripts of one key, and of keys for each sample."""

    def run(x, key, keys):
        first, *_, last = jd.random.split(key, 3)
        a, b = jd.random.split(keys)
        derived = (
            first,
            last,
            jd.random.split(key, 3)[-2],
            keys[1],
            jd.random.fold_in(keys, 5),
            a,
            b,
            jd.random.fold_in(b, 2),
        )
        crops = [jd.random_resized_crop(x, size=(4, 4), key=k) for k in derived]
        crops += [jd.random_resized_crop(x, size=(4, 4), key=[jd.random.fold_in(key, i) for i in range(len(x))])]
        return [*crops, jd.random.uniform(key=keys), jd.random.uniform(key=key, batch_size=len(keys))]

    expected = [bits(y) for y in run(IMAGES, KEY, KEYS)]
    for compiled in COMPILERS.values():
        assert [bits(y) for y in compiled(run)(IMAGES, KEY, KEYS)] == expected
    with pytest.raises(ValueError, match="there are 2 keys for 3 samples"):
        jd.jit(lambda x, key: jd.random_resized_crop(x, size=(4, 4), key=jd.random.split(key)))(IMAGES, KEY)


def test_number_of_samples_by_threads():
    """Several threads trace a function that asks for its number of samples by `batch_size=`."""
    for _ in range(5):
        draw, start = jd.jit(lambda key: jd.random.uniform(key=key, batch_size=N)), threading.Barrier(4)

        def call(_, draw=draw, start=start):
            start.wait()
            return draw(KEY).numpy()

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
    """`len` of a batch, of keys, and of numbers that keys draw."""
    zeros = lambda x: jd.zeros(shape=[1], batch_size=len(x))
    assert len(jd.jit(lambda x: zeros(2 * x[:2]))(IMAGES)) == N
    for x in (IMAGES, FILES, [IMAGES[0][:5], IMAGES[1]]):
        assert len(jd.jit(zeros)(x)) == len(x)
    assert len(jd.jit(zeros)(KEYS)) == len(jd.jit(lambda keys: zeros(jd.random.coin_flip(key=keys)))(KEYS)) == N
    with pytest.raises(TypeError, match=r"len\(\) of a single value.*leave out batch_size="):
        jd.jit(zeros)(FILES[0])

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def definition():
        return fn.zeros(shape=[len(fn.random.coin_flip())])

    with pytest.raises(TypeError, match=r"len\(\) of a DataNode"):
        definition().build()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda x: np.frombuffer(x, np.uint8)])
def test_single_files(kind):
    """By position, by name, and two of them; a function of a single file returns a single sample."""
    first, second = jd.decoders.image(FILES[0]), jd.decoders.image(FILES[1])
    single = jd.jit(jd.decoders.image)(kind(FILES[0]))
    pair = jd.jit(lambda image, mask: (jd.decoders.image(image), jd.decoders.image(mask)))
    for decoded in ((single, second), pair(kind(FILES[0]), kind(FILES[1])), pair(kind(FILES[0]), mask=kind(FILES[1]))):
        assert [(type(x), x.layout) for x in decoded] == [(jd.Tensor, "HWC")] * 2
        np.testing.assert_array_equal(decoded[0], first)
        np.testing.assert_array_equal(decoded[1], second)
    one_and_many = jd.jit(lambda single, many: (jd.decoders.image(single), jd.decoders.image(many)))(
        kind(FILES[0]), FILES[:2]
    )
    np.testing.assert_array_equal(one_and_many[0], one_and_many[1][0])
    # A tuple of files is a batch.
    assert jd.jit(jd.decoders.image)((FILES[0], FILES[1])).shapes == [first.shape, second.shape]
    key, crop = jax.random.key(3), lambda x, key: jd.random_resized_crop(jd.decoders.image(x), size=(4, 4), key=key)
    np.testing.assert_array_equal(jd.jit(crop)(kind(FILES[0]), key), crop(FILES[0], key))
