"""The cost of a pipeline's stages, as its meter reports it."""

import gzip
import time

import jax
import numpy as np
import pytest
import shardings
from PIL import Image

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali._batch.meter import Measured, Meter, Statistics
from jaxdali.plugin.jax import data_iterator


@pipeline_def(batch_size=4, num_threads=1, prefetch_queue_depth=1, exec_pipelined=False)
def pipeline():
    images = fn.external_source(lambda: [np.zeros((6, 8, 3), np.uint8)] * 4, layout="HWC", name="images")
    number = fn.random.uniform(range=(0.0, 1.0), name="number")
    return fn.resize(images, size=(3, 4), name="small"), number + 1.0


def test_each_stage_of_each_step_is_measured():
    pipe = pipeline(enable_statistics=True)
    for _ in range(3):
        pipe.run()
    rows = {(m.stage, m.step): m for m in pipe.statistics()}
    pipe.close()
    assert {stage for stage, _ in rows} == {"read", "host", "setup", "launch", "check", "program", "output"}
    for key in [
        ("read", "images"),
        ("host", "number"),
        ("setup", "small"),
        ("launch", "0: resize"),
        ("output", "outputs"),
    ]:
        assert rows[key].calls == 3
        assert rows[key].seconds > 0
    assert rows["read", "images"].samples >= 12
    # Not the buffers, which are larger.
    assert rows["read", "images"].bytes == rows["read", "images"].samples * 6 * 8 * 3
    assert (rows["host", "number"].samples, rows["host", "number"].bytes) == (12, 3 * 4 * 4)
    assert rows["output", "outputs"].bytes >= 3 * 4 * (3 * 4 * 3 + 4)
    arithmetic = [m for (stage, step), m in rows.items() if stage == "host" and "arithmetic" in step]
    assert [(m.calls, m.samples, m.bytes) for m in arithmetic] == [(3, 12, 48)]


def test_meter_is_off_by_default():
    pipe = pipeline()
    assert not pipe.enable_statistics
    with pytest.raises(RuntimeError, match="has not run yet"):
        pipe.statistics()
    pipe.run()
    with pytest.raises(RuntimeError, match="enable_statistics=True"):
        pipe.statistics()
    pipe.close()
    with pytest.raises(TypeError, match="enable_statistics"):
        Pipeline(enable_statistics="yes")  # pyright: ignore[reportArgumentType]
    meter = Meter(False)
    with meter.stage("host", "cast", "x"):
        pass
    assert meter.statistics() == ()


def test_statistics_of_iterators_add_up_pipelines():
    def source():
        return fn.external_source([np.zeros((2, 3), np.float32)] * 3, name="x")

    with data_iterator(source, ["x"])(batch_size=2, enable_statistics=True) as iterator:
        assert len(list(iterator)) == 3
        (read,) = [m for m in iterator.statistics() if m.stage == "read"]
    assert read.step == "x"
    assert read.calls >= 3
    a, b = Measured("read", "x", 0.5, 2, 8, 64), Measured("host", "y", 0.25, 1, 4, 16)
    assert Statistics.merged([Statistics([a, b]), Statistics([a])]) == (Measured("read", "x", 1.0, 4, 16, 128), b)


def test_repr_is_a_table():
    rows = Statistics([Measured("read", "reader", 1.5, 3, 24, 2_500_000), Measured("launch", "0: resize", 0.003, 3)])
    assert repr(rows).splitlines() == [
        "stage   step       seconds  ms / call  calls  samples     MB",
        "read    reader       1.500    500.000      3       24  2.500",
        "launch  0: resize    0.003      1.000      3        0  0.000",
    ]


def test_rows_and_profiles_have_user_names(tmp_path):
    """The names that the user gave to operators are in the table, and in JAX's profile."""

    @pipeline_def(batch_size=2, num_threads=1, enable_statistics=True, prefetch_queue_depth=1)
    def definition():
        images = fn.external_source(lambda: [np.zeros((30, 30, 3), np.uint8)] * 2, name="camera")
        return fn.resize(fn.rotate(images, angle=10.0, name="my_rotate"), size=(4, 4))

    pipe = definition()
    with jax.profiler.trace(str(tmp_path), create_perfetto_trace=True):
        pipe.run()
    steps = {(m.stage, m.step) for m in pipe.statistics()}
    assert {("read", "camera"), ("setup", "my_rotate"), ("launch", "0: rotate resize")} <= steps
    (trace,) = tmp_path.rglob("perfetto_trace.json.gz")
    text = gzip.decompress(trace.read_bytes()).decode()
    assert all(
        name in text
        for name in ("read external_source (camera)", "setup rotate (my_rotate)", "launch rotate (my_rotate) resize")
    )
    pipe.close()


@pytest.mark.parametrize("fuse", [True, False])
def test_times_of_operators_in_programs(fuse, tmp_path):
    """The rows have the user's names. Their times together are no more than the elapsed time."""
    file = tmp_path / "ramp.jpg"
    Image.fromarray(
        (np.indices((800, 1000)).sum(axis=0)[..., None] // np.array([2, 5, 9]) % 256).astype(np.uint8)
    ).save(file)

    @pipeline_def(batch_size=8, num_threads=2, enable_statistics=True, exec_pipelined=False, fuse=fuse)
    def definition():
        jpegs, _ = fn.readers.file(files=[str(file)])
        images = fn.resize(fn.decoders.image(jpegs, name="my_decoder"), size=(700, 700), name="my_resize")
        return fn.gaussian_blur(fn.rotate(images, angle=10.0, name="my_rotate"), sigma=4.0, name="my_blur")

    pipe = definition()
    pipe.run()  # compiles
    seconds_before = {(m.stage, m.step): m.seconds for m in pipe.statistics()}
    start = time.perf_counter()
    for _ in range(3):
        pipe.run()
    elapsed = time.perf_counter() - start
    rows = {(m.stage, m.step): m for m in pipe.statistics()}
    pipe.close()
    took = {step: m.seconds - seconds_before[stage, step] for (stage, step), m in rows.items() if stage == "program"}
    assert list(took) == ["my_decoder", "my_resize", "my_rotate", "my_blur"]
    assert all((rows["program", step].calls, rows["program", step].samples) == (4, 32) for step in took)
    assert min(took.values()) > 0
    assert sum(took.values()) <= elapsed
    assert took["my_blur"] > took["my_decoder"]  # 33 x 33 taps


def test_times_over_several_shards_and_phases():
    """Shards that run at once do not add up to more than the elapsed time. A program for which a later phase waits
    counts once.
    """
    photos = [np.full((500, 500, 3), i, np.uint8) for i in range(64)]

    def definition(num_shards, shard_id):
        images = fn.readers.source(photos, num_shards=num_shards, shard_id=shard_id, name="camera", layout="HWC")
        blurred = fn.gaussian_blur(images, sigma=3.0, name="first")
        size = fn.cast(fn.reductions.mean(blurred, axes=[0, 1, 2]), dtype="int32") * 0 + 300
        return fn.resize(blurred, size=fn.stack(size, size), name="second")

    options = {"reader_name": "camera", "auto_reset": True, "sharding": shardings.of_batch(4)}
    start = time.perf_counter()
    with data_iterator(definition, ["x"], **options)(batch_size=16, num_threads=2, enable_statistics=True) as iterator:
        next(iterator)
        batches = 1 + len([next(iterator) for _ in range(3)])
        rows = {(m.stage, m.step): m for m in iterator.statistics()}
        elapsed = time.perf_counter() - start
    first = rows["program", "first"]
    assert first.calls >= batches
    assert abs(first.samples - 16 * first.calls) <= 16  # a batch may be counted meanwhile
    assert rows["program", "second"].seconds > 0
    assert sum(m.seconds for key, m in rows.items() if key[0] == "program") <= elapsed
