"""fn.decoders.inflate: LZ4 blocks, one or several in a sample."""

import functools
import sys

import numpy as np
import pytest
from pipelines import run

from jaxdali import SampleError, Storage, fn, pipeline_def, types
from jaxdali._core.errors import ArgumentError

block = pytest.importorskip("lz4.block")


def deflated(x):
    return np.frombuffer(block.compress(np.ascontiguousarray(x).tobytes(), store_size=False), np.uint8)


def samples(define, *inputs, **kwargs):
    (output,) = run(define, *inputs, **kwargs)
    return output


def test_a_block_by_hand():
    """4 literals, then 8 bytes from 4 before; 5 last literals: 17 bytes (lz4_Block_format.md)."""
    x = np.frombuffer(b"\x44abcd\x04\x00\x50efghi", np.uint8)
    outputs = samples(lambda x: fn.decoders.inflate(x, shape=17), [x, x])
    assert [np.asarray(y).tobytes() for y in outputs] == [b"abcdabcdabcdefghi"] * 2


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("dtype", [types.UINT8, types.INT16, types.FLOAT, types.BOOL])
def test_images(on_device, dtype):
    images = [np.random.default_rng(i).integers(0, 2, (3, 4, 2)).astype(types.to_numpy_type(dtype)) for i in range(3)]
    inflate = functools.partial(fn.decoders.inflate, shape=(3, 4, 2), dtype=dtype, layout="HWC")
    outputs = samples(inflate, [deflated(x) for x in images], on_device=on_device)
    assert outputs.layout() == "HWC"
    np.testing.assert_array_equal(outputs.as_array(), np.stack(images))


def test_the_result_is_where_the_input_is():
    @pipeline_def(batch_size=1)
    def pipeline(input_device, device):
        x = fn.external_source(lambda: deflated(np.arange(4, dtype=np.uint8)), batch=False)
        inflated = fn.decoders.inflate(x.gpu() if input_device == "gpu" else x, shape=4, device=device)
        assert inflated.device == (device or input_device)
        return inflated

    for input_device in ("cpu", "gpu"):
        for device in (None, "cpu", "gpu"):
            assert np.asarray(pipeline(input_device, device).run()[0].as_cpu()[0]).tolist() == [0, 1, 2, 3]


def sequence(count, seed):
    """Frames whose size depends on the seed, and the bytes, offsets and sizes of their compressed chunks."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 3, (count, 5 + seed, 7, 3)).astype(np.uint8)
    chunks = [deflated(f) for f in frames]
    ends = np.cumsum([len(c) for c in chunks])
    return frames, np.concatenate(chunks), np.int32([0, *ends[:-1]]), np.int32([len(c) for c in chunks])


@pytest.mark.parametrize("arguments", ["sizes", "offsets", "both"])
@pytest.mark.parametrize("letter", ["F", "N"])
def test_chunks_become_the_first_axis(arguments, letter):
    cases = [sequence(count, seed) for seed, count in enumerate((3, 1, 5))]

    def define(x, offsets, sizes, shape):
        chunks = {"chunk_offsets": offsets} if arguments != "sizes" else {}
        chunks |= {"chunk_sizes": sizes} if arguments != "offsets" else {}
        return fn.decoders.inflate(x, shape=shape, layout="HWC", sequence_axis_name=letter, **chunks)

    shapes = [np.int32(frames.shape[1:]) for frames, *_ in cases]
    outputs = samples(define, *(list(column) for column in list(zip(*cases))[1:]), shapes)
    assert outputs.layout() == f"{letter}HWC"
    for x, (frames, *_) in zip(outputs, cases):
        np.testing.assert_array_equal(np.asarray(x), frames)


def test_equal_chunks_are_dense():
    one = deflated(np.float32([1, 2]))
    x = np.concatenate([one, one, deflated(np.float32([3]))])  # the last is shorter than its shape: the rest is 0
    offsets = [0, len(one), 2 * len(one)]
    outputs = samples(lambda x: fn.decoders.inflate(x, shape=[2], dtype=types.FLOAT, chunk_offsets=offsets), [x, x])
    assert outputs.as_array().tolist() == [[[1, 2], [1, 2], [3, 0]]] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": 3}, "chunk 0, bytes 0 to 6, is not an LZ4 block of at most 3 bytes"),
        ({"shape": 4, "chunk_offsets": [0, 0]}, "a chunk from byte 0 to 0 is outside the sample of 6 bytes"),
        ({"shape": 4, "chunk_offsets": [0, 3]}, "chunk 0, bytes 0 to 3, is not an LZ4 block"),
        ({"shape": 4, "chunk_offsets": 6}, "from byte 6 to 6"),
        ({"shape": 4, "chunk_offsets": -1}, "from byte -1 to 6"),
        ({"shape": 4, "chunk_sizes": 0}, "from byte 0 to 0"),
        ({"shape": 4, "chunk_sizes": [3, 4]}, "from byte 3 to 7 is outside"),
        ({"shape": 4, "chunk_sizes": [3, 4], "chunk_offsets": 0}, "as many chunk_offsets as chunk_sizes, got 1 and 2"),
    ],
)
def test_damaged_chunks_fail_their_sample(arguments, message):
    with pytest.raises(SampleError, match=f"decoders.inflate.*{message}"):
        samples(lambda x: fn.decoders.inflate(x, **arguments), [deflated(np.arange(5, dtype=np.uint8))])


def test_wrong_arguments():
    for arguments, error, message in (
        ({"shape": 4, "layout": "HW"}, ArgumentError, "the layout does not fit a shape of 1 dimensions"),
        ({"shape": 4, "sequence_axis_name": "FG"}, ArgumentError, "sequence_axis_name must be one letter, got 'FG'"),
        ({"shape": -1}, ArgumentError, "shape must be"),
        ({"shape": 4, "algorithm": "zstd"}, ArgumentError, "algorithm must be"),
    ):
        with pytest.raises(error, match=f"decoders.inflate.*{message}"):
            samples(lambda x: fn.decoders.inflate(x, **arguments), [np.zeros(3, np.uint8)])  # noqa: B023
    with pytest.raises(TypeError, match="compressed bytes, 1-D uint8, got 1-D float32"):
        samples(lambda x: fn.decoders.inflate(x, shape=3), [np.zeros(3, np.float32)])


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(ImportError, match=r'decoders.inflate .*pip install "jaxdali\[lz4\]"'):
        samples(lambda x: fn.decoders.inflate(x, shape=3), [np.zeros(3, np.uint8)])


def test_decompressed_sizes_are_bounded(tmp_path):
    """Sizes in the data can't demand much memory: the operator's own limit bounds it, or that of the reader."""
    (tmp_path / "x.bin").write_bytes(deflated(np.zeros(1000, np.uint8)).tobytes())

    def pipeline(n, limit_of_reader=None, **arguments):
        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def define():
            storage = limit_of_reader and Storage(max_record_bytes=limit_of_reader)
            data, _ = fn.readers.file(files=[str(tmp_path / "x.bin")], storage=storage)
            size = fn.external_source(lambda: np.array([n]), batch=False)
            return fn.decoders.inflate(data, shape=size, **arguments)

        return define()

    assert len(pipeline(1000).run()[0].as_array()[0]) == 1000
    for n, arguments, limit in (
        (1 << 40, {}, 1 << 30),
        (1 << 62, {}, 1 << 30),
        (1001, {"storage": Storage(max_record_bytes=1000)}, 1000),
        (1001, {"limit_of_reader": 1000}, 1000),
        (251, {"limit_of_reader": 1000, "dtype": types.INT32}, 1000),
    ):
        with pytest.raises(
            SampleError, match=rf"it would take \d+ bytes, Storage\(max_record_bytes={limit}\) allows no more"
        ):
            pipeline(n, **arguments).run()
    assert len(pipeline(1001, 1000, storage=Storage()).run()[0].as_array()[0]) == 1001
