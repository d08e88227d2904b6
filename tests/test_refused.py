"""Misuse that NVIDIA DALI 2.4 refuses, with the classes of exceptions that it raises."""

import numpy as np
import pytest

from jaxdali import fn, pipeline_def, types
from jaxdali.auto_aug import augmentations, auto_augment, trivial_augment
from jaxdali.pipeline import Pipeline, do_not_convert
from jaxdali.plugin.jax import DALIGenericIterator


def _run(define, **arguments):
    pipeline = Pipeline(num_threads=1, device_id=None, **{"batch_size": 2, "seed": 1, **arguments})
    with pipeline:
        pipeline.set_outputs(define())
    pipeline.build()
    return [np.array(x) for x in pipeline.run()[0].as_cpu()]


def _batch():
    return [np.float32(1), np.float32(2)]


@pytest.mark.parametrize(
    "source",
    [
        lambda i, **kw: _batch(),
        lambda i, *, a=1: _batch(),
        lambda *, a=1: _batch(),
        lambda **kw: _batch(),
        lambda *a: _batch(),
    ],
)
def test_sources_take_no_other_arguments(source):
    with pytest.raises(TypeError, match=r"must take no or one positional argument .* and no others"):
        _run(lambda: fn.external_source(source=source))


@pytest.mark.parametrize(
    ("item", "kind"), [(None, TypeError), (3, TypeError), (_batch(), IndexError), ([], IndexError)]
)
def test_sources_of_several_outputs(item, kind):
    with pytest.raises(kind, match="with num_outputs=1 the source must return a tuple of 1 items, got"):
        _run(lambda: fn.external_source(source=lambda: item, num_outputs=1)[0])


def test_pipeline_definitions_are_not_kept_from_conversion():
    def define():
        return fn.random.coin_flip()

    with pytest.raises(ValueError, match="pipeline definition must not be marked with @do_not_convert"):
        do_not_convert(pipeline_def(batch_size=2, num_threads=1, device_id=None)(define))
    with pytest.raises(ValueError, match="the pipeline definition define must not be marked with @do_not_convert"):
        pipeline_def(batch_size=2, num_threads=1, device_id=None)(do_not_convert(define))
    with pytest.raises(TypeError, match="do_not_convert marks functions, got 5"):
        do_not_convert(5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", [[3], (3,), np.array([3])])
def test_sizes_are_numbers(size):
    pipeline = Pipeline(batch_size=2, num_threads=1, device_id=None)
    with pipeline:
        pipeline.set_outputs(fn.random.coin_flip())
    with pytest.raises(TypeError, match="argument size must be one value"):
        DALIGenericIterator(pipeline, ["x"], size=size)


def test_unknown_arguments():
    with pytest.raises(KeyError) as e:
        _run(lambda: fn.readers.coco(file_root="/", annotations_file="/x", preprocessed_annotations_dir="/"))
    assert isinstance(e.value, TypeError)
    assert str(e.value).startswith("readers.coco: got an unexpected argument")


def test_paste_takes_bytes_alone():
    with pytest.raises(RuntimeError, match=r"paste.*the input must be uint8, got int32"):
        _run(lambda: fn.paste(types.Constant(np.zeros((2, 2, 3), np.int32), layout="HWC"), ratio=2.0, fill_value=0))


@pytest.mark.parametrize("magnitude_bin", [40, 31, -1])
@pytest.mark.parametrize("operation", [augmentations.rotate, augmentations.posterize], ids=["signed", "unsigned"])
@pytest.mark.filterwarnings("ignore:the augmentation .* draws its own sign:UserWarning")
def test_bins_of_magnitudes_exist(operation, magnitude_bin):
    with pytest.raises(ValueError, match=f"has the magnitude bins 0 to 30, got {magnitude_bin}"):
        _run(lambda: operation(_image(), magnitude_bin=magnitude_bin, num_magnitude_bins=31), enable_conditionals=True)


def _image():
    return types.Constant(np.zeros((4, 4, 3), np.uint8), layout="HWC")


@pytest.mark.parametrize("apply", [auto_augment.auto_augment, trivial_augment.trivial_augment_wide])
def test_translations_are_one_or_two_numbers(apply):
    with pytest.raises(ValueError, match=r"max_translate_abs must be one number, or two .*, got \(1, 2, 3\)"):
        _run(lambda: apply(_image(), max_translate_abs=(1, 2, 3)), enable_conditionals=True)


def test_policies_are_not_names():
    with pytest.raises(TypeError, match="policy must be a Policy, got 'image_net'; pass names of policies"):
        _run(lambda: auto_augment.apply_auto_augment("image_net", _image()), enable_conditionals=True)  # pyright: ignore[reportArgumentType]


def test_accepted_values_equal_dalis():
    drawn = [_run(lambda: fn.random.uniform(), seed=seed) for seed in (True, 1)]
    np.testing.assert_array_equal(*drawn)
    assert [x.tolist() for x in _run(lambda: fn.random.choice(1, p=1.0))] == [0, 0]


@pytest.mark.parametrize(
    "region", [{"roi_start": [], "roi_axes": []}, {"roi_end": [], "roi_axes": [0]}, {"roi_shape": (), "roi_start": 1}]
)
def test_empty_regions_of_numpy_files_are_none(tmp_path, region):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    arrays = _run(lambda: fn.readers.numpy(file_root=str(tmp_path), **region))
    np.testing.assert_array_equal(
        arrays[0], np.arange(6).reshape(2, 3)[region.get("roi_start") or 0 :, region.get("roi_start") or 0 :]
    )


def _shapes_of(operator, **arguments):
    samples = [np.zeros((0, 7, 3), np.uint8), np.ones((4, 7, 3), np.uint8), np.zeros((4, 0, 3), np.uint8)]

    def define():
        return operator(fn.external_source(source=lambda: samples, layout="HWC"), **arguments)

    return [x.shape for x in _run(define, batch_size=3)]


def test_resizing_empty_samples():  # as DALI does
    assert _shapes_of(fn.resize, resize_shorter=3) == [(0, 3, 3), (3, 5, 3), (3, 0, 3)]
    assert _shapes_of(fn.resize, size=[2, 3], mode="not_larger") == [(0, 3, 3), (2, 3, 3), (2, 0, 3)]
    assert _shapes_of(fn.tensor_resize, sizes=[2, 3], axes=[0, 1]) == [(0, 3, 3), (2, 3, 3), (2, 0, 3)]
