"""Sequences of encoded images, from columns of lists in tables and from external_source."""

import io

import numpy as np
import places
import pytest
from PIL import Image

import jaxdali
from jaxdali import fn, pipeline_def, types


def photo(k, size=(56, 40), form="JPEG"):
    paths = sorted(places.PHOTOS.glob("*/*.jpg"))
    data = io.BytesIO()
    Image.open(paths[k % len(paths)]).resize(size).convert("RGB").save(data, form)
    return data.getvalue()


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def padded(files):
    rows = np.full((len(files), max(map(len, files))), 7, np.uint8)  # bytes after a file do not matter
    for row, data in zip(rows, files, strict=True):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return rows


CLIPS = [
    [photo(3 * i + k, size=(56 + 8 * i, 40), form=("JPEG", "PNG", "WEBP")[k % 3 if i else 0]) for k in range(2 + i)]
    for i in range(3)
]


def decode(samples, transform=lambda x: x, layout="F*", **arguments):
    @pipeline_def(batch_size=len(samples), num_threads=2, seed=1)
    def definition():
        encoded = fn.external_source(source=lambda: samples, layout=layout)
        return transform(fn.decoders.image(encoded, **arguments))

    return [np.asarray(x) for x in definition().run()[0].as_cpu()]


def test_pixels_equal_single_images():
    clips = decode([padded(clip) for clip in CLIPS])
    for x, clip in zip(clips, CLIPS, strict=True):
        np.testing.assert_array_equal(x, np.stack([pixels(data) for data in clip]))


@pytest.mark.parametrize("device", ["cpu", "mixed"])
def test_operators_on_frames_follow(device):
    clips = [CLIPS[1][:2], CLIPS[1][1:]]
    decoded = decode(
        [padded(c) for c in clips], lambda x: fn.flip(fn.resize(x, size=(20, 28)), horizontal=1), device=device
    )
    single_images = [
        decode([np.frombuffer(d, np.uint8)], lambda x: fn.flip(fn.resize(x, size=(20, 28)), horizontal=1), layout=None)
        for c in clips
        for d in c
    ]
    np.testing.assert_array_equal(np.concatenate(decoded), np.concatenate(single_images))


def test_kept_sequences():
    for kind in (types.RGB, types.BGR, types.RGB):
        (clip,) = decode([padded(CLIPS[1])], output_type=kind, cache="10MB")
        expected = np.stack([pixels(data) for data in CLIPS[1]])
        np.testing.assert_array_equal(clip, expected if kind == types.RGB else expected[..., ::-1])


def test_types_and_windows():
    (gray,) = decode([padded(CLIPS[1])], output_type=types.GRAY, dtype=types.FLOAT)
    assert gray.shape == (3, 40, 64, 1)
    assert gray.dtype == np.float32

    @pipeline_def(batch_size=1, num_threads=1)
    def definition():
        encoded = fn.external_source(source=lambda: [padded(CLIPS[2])], layout="F*")
        return fn.decoders.image_crop(encoded, crop=(16, 24), crop_pos_x=0.25, crop_pos_y=1.0)

    np.testing.assert_array_equal(definition().run()[0].at(0), np.stack([pixels(d)[24:, 12:36] for d in CLIPS[2]]))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([CLIPS[0][0], b"no image"], "frame 1: the data are not an image"),
        ([CLIPS[0][0], CLIPS[1][0]], r"frame 1: it is \(40, 64, 3\), but frame 0 is \(40, 56, 3\)"),
        ([CLIPS[0][0], CLIPS[0][1][:200]], "frame 1"),
    ],
)
def test_bad_frames_are_errors(frames, message):
    with pytest.raises(jaxdali.SampleError, match=message):
        decode([padded(frames)])


def test_large_frames_are_refused_before_decoding():
    with pytest.raises(
        jaxdali.SampleError, match="frame 0: the image is too large: 56 x 40 pixels, max_pixels is 2000"
    ):
        decode([padded(CLIPS[0])], max_pixels=2000)


@pytest.mark.parametrize("kind", ["list", "fixed", "images"])
def test_columns_of_lists(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    clips = [c[:2] for c in CLIPS] if kind == "fixed" else CLIPS
    (tmp_path / "beside.jpg").write_bytes(CLIPS[0][0])
    if kind == "images":
        rows = [[{"bytes": d, "path": None} for d in c] for c in clips]
        rows[0][0] = {"bytes": None, "path": "beside.jpg"}
        column_type = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    else:
        rows, column_type = clips, pa.list_(pa.binary(), 2) if kind == "fixed" else pa.large_list(pa.binary())
    pq.write_table(pa.table({"frames": pa.array([*rows, None, *rows[:1]], column_type)}), tmp_path / "clips.parquet")

    @pipeline_def(batch_size=4, num_threads=2)
    def definition():
        encoded = fn.readers.parquet(path=str(tmp_path / "clips.parquet"), columns="frames", on_error="replace")
        return fn.decoders.image(encoded)

    decoded = definition().run()[0]
    for k, clip in enumerate([*clips, clips[0]]):
        np.testing.assert_array_equal(decoded.at(k), np.stack([pixels(data) for data in clip]))


def test_sequences_are_limited(tmp_path):
    """By the memory of all frames, which are decoded one after the other."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"frames": [[CLIPS[0][0]] * 20]}), tmp_path / "a.parquet")
    size = 20 * 56 * 40 * 3

    @pipeline_def(batch_size=1, num_threads=1)
    def definition(limit):
        path, storage = str(tmp_path / "a.parquet"), jaxdali.Storage(max_record_bytes=limit)
        return fn.decoders.image(fn.readers.parquet(path=path, columns="frames", storage=storage))

    pipe = definition(size)
    assert pipe.run()[0].at(0).shape == (20, 40, 56, 3)
    pipe.close()
    with pytest.raises(
        jaxdali.SampleError, match=rf"it has 20 frames \(40, 56, 3\): .*\(max_record_bytes={size - 1}\)"
    ):
        definition(size - 1).run()


def test_tables_can_not_demand_much_memory(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"frames": [[b"x" * 50_000] + [b""] * 50_000]}), tmp_path / "bomb.parquet")
    storage = jaxdali.Storage(max_record_bytes=1 << 28)

    @pipeline_def(batch_size=1, num_threads=1)
    def definition():
        return fn.readers.parquet(path=str(tmp_path / "bomb.parquet"), columns="frames", storage=storage)

    with pytest.raises(jaxdali.SampleError, match="50001 elements of up to 50000 bytes are too large"):
        definition().run()
