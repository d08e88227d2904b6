"""`python -m jaxdali.pack`: its files are read by jaxdali's readers, and by those of other libraries."""

import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import containers
import numpy as np
import pytest
from PIL import Image

from jaxdali import Pipeline, fn, tfrecord
from jaxdali.pack.__main__ import main

# The files are small, so reading without a stored index is fast.
pytestmark = pytest.mark.filterwarnings("ignore:.*there is no index:UserWarning")

SIZES = [(40, 60), (90, 50), (33, 33), (20, 100), (64, 48), (100, 30), (41, 42), (35, 99), (70, 70), (31, 45), (50, 50)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Eleven photos of two classes, one of them a PNG, one smaller than the rest."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i, (height, width) in enumerate(SIZES):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = Image.fromarray(rng.integers(0, 256, (3, 3, 3), np.uint8)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        pixels.save(folder / "ab"[i % 2] / f"{i:02}.{'png' if i == 4 else 'jpg'}")
    return folder


def files_of(photos):
    """The files in the order of the reader, with their labels."""
    return [(f.read_bytes(), "ab".index(f.parent.name)) for f in sorted(photos.rglob("*.*"))]


def read(reader, outputs=2):
    """The samples of a reader in one epoch."""
    with Pipeline(batch_size=1, num_threads=1, device_id=None) as pipe:
        nodes = reader(name="reader")
        pipe.set_outputs(
            *(nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else [nodes])
        )
    samples = [[np.asarray(x.at(0)) for x in pipe.run()] for _ in range(pipe.epoch_size("reader"))]
    pipe.close()
    return samples


def shards(folder, ending):
    return sorted(map(str, folder.glob(f"*.{ending}")))


def test_webdataset(photos, tmp_path, capsys):
    assert main([str(photos), str(tmp_path), "--shards", "3", "--workers", "1"]) == 0
    assert capsys.readouterr().out == (
        f"11 records in 3 shards, {sum(os.path.getsize(p) for p in shards(tmp_path, 'tar')) / 1e6:.1f} MB: "
        f"{tmp_path}/data-{{00000..00002}}-of-00003.tar\n"
    )
    paths = shards(tmp_path, "tar")
    samples = [
        (jpeg if jpeg.size else png, label)
        for jpeg, png, label in read(
            lambda name: fn.readers.webdataset(paths=paths, ext=["jpg", "png", "cls"], name=name)
        )
    ]
    assert [(x.tobytes(), int(label.tobytes())) for x, label in samples] == files_of(photos)
    indexed = read(
        lambda name: fn.readers.webdataset(paths=paths, index_paths=[f"{p}.idx" for p in paths], ext="cls", name=name)
    )
    assert [int(x.tobytes()) for (x,) in indexed] == [label for _, label in files_of(photos)]
    with tarfile.open(paths[1]) as tar:
        assert tar.getnames() == [f"{i:09}.{e}" for i in range(3, 7) for e in (("png" if i == 2 else "jpg"), "cls")]


def test_tfrecord(photos, tmp_path):
    names = "image/encoded,image/class/label"
    assert (
        main([str(photos), str(tmp_path), "--format", "tfrecord", "--shards", "2", "--workers", "1", "--names", names])
        == 0
    )
    paths = shards(tmp_path, "tfrecord")
    features = {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    index = [f"{p}.idx" for p in paths]
    samples = read(lambda name: fn.readers.tfrecord(path=paths, index_path=index, features=features, name=name))
    assert [(x.tobytes(), int(label[0])) for x, label in samples] == files_of(photos)
    # Equal bytes to those of an independent writer.
    examples = [
        containers.example({"image/encoded": [x], "image/class/label": [label]}) for x, label in files_of(photos)
    ]
    written = containers.write_tfrecord(tmp_path / "expected", examples[:5]).read_bytes()
    assert pathlib.Path(paths[0]).read_bytes() == written


def test_tfrecord_is_read_by_others(photos, tmp_path):
    reader = pytest.importorskip("tfrecord.reader")
    assert main([str(photos), str(tmp_path), "--format", "tfrecord", "--workers", "1"]) == 0
    rows = reader.tfrecord_loader(shards(tmp_path, "tfrecord")[0], None, {"image": "byte", "label": "int"})
    assert [(bytes(r["image"]), int(r["label"][0])) for r in rows] == files_of(photos)


def test_array_record(photos, tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    assert main([str(photos), str(tmp_path), "--format", "array_record", "--shards", "2", "--workers", "1"]) == 0
    paths = shards(tmp_path, "array_record")
    expected = [containers.example({"image": [x], "label": [label]}) for x, label in files_of(photos)]
    assert [x.tobytes() for (x,) in read(lambda name: fn.readers.array_record(path=paths, name=name))] == expected
    readers = [module.ArrayRecordReader(p) for p in paths]
    assert [x for reader in readers for x in reader.read_all()] == expected
    # And back: records of one entry are stored as they are.
    target = tmp_path / "again"
    assert (
        main(
            [
                "readers.array_record",
                f"path={','.join(paths)}",
                str(target),
                "--format",
                "array_record",
                "--workers",
                "1",
            ]
        )
        == 0
    )
    assert [
        x.tobytes()
        for (x,) in read(lambda name: fn.readers.array_record(path=shards(target, "array_record"), name=name))
    ] == expected


def test_one_shard(photos, tmp_path, capsys):
    assert main([str(photos), str(tmp_path), "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("11 records in 1 shard, ")


def test_images_are_made_smaller(photos, tmp_path, capsys):
    arguments = [str(photos), str(tmp_path), "--resize-shorter", "32", "--quality", "80", "--workers", "1"]
    assert main(arguments) == 0
    (path,) = shards(tmp_path, "tar")
    with tarfile.open(path) as tar:
        files = [tar.extractfile(m).read() for m in tar if not m.name.endswith(".cls")]
    for (original, _), packed in zip(files_of(photos), files, strict=True):
        with Image.open(io.BytesIO(original)) as original_image, Image.open(io.BytesIO(packed)) as packed_image:
            shorter = min(original_image.size)
            if shorter <= 32:
                assert packed == original
                continue
            assert (min(packed_image.size), packed_image.format) == (32, "JPEG")
            assert max(packed_image.size) in {
                int(max(original_image.size) * 32 / shorter),
                round(max(original_image.size) * 32 / shorter),
            }
            expected = np.asarray(
                original_image.convert("RGB").resize(packed_image.size, Image.Resampling.BILINEAR), np.float32
            )
            assert abs(np.asarray(packed_image, np.float32) - expected).mean() < 4
    count = sum(min(size) > 32 for size in SIZES)
    assert f"{count} images were encoded anew" in capsys.readouterr().out


def test_bad_samples_are_left_out_and_reported(photos, tmp_path, capsys):
    copied = shutil.copytree(photos, tmp_path / "photos")
    truncated, missing = copied / "a" / "02.jpg", copied / "b" / "01.jpg"
    truncated.write_bytes(truncated.read_bytes()[:400])
    missing.unlink()
    missing.symlink_to(tmp_path / "nowhere")
    assert main([str(copied), str(tmp_path / "out"), "--resize-shorter", "32", "--shards", "2", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("9 records in 2 shards")
    assert "2 bad samples were left out:\n" in out
    # Without advice about arguments that the command does not have.
    assert f"\n  {truncated}: JPEG: the image data end early (truncated file)\n" in out
    assert f"\n  {missing}: No such file or directory\n" in out
    reports = [json.loads(p.read_text()) for p in sorted((tmp_path / "out" / ".pack").glob("data-*.json"))]
    assert sorted(path for r in reports for path, _ in r["bad"]) == sorted(map(str, (truncated, missing)))
    arguments = [
        str(copied),
        str(tmp_path / "strict"),
        "--resize-shorter",
        "32",
        "--on-error",
        "raise",
        "--workers",
        "1",
    ]
    assert main(arguments) == 1
    assert str(copied) in capsys.readouterr().err  # the first one that is found


def test_a_killed_run_goes_on(photos, tmp_path):
    """A run that was killed with SIGKILL after some shards makes the others. All files equal those of an undisturbed
    run.
    """
    many = tmp_path / "many"
    for file in photos.rglob("*.*"):
        (many / file.parent.name).mkdir(parents=True, exist_ok=True)
        for i in range(60):
            shutil.copy(file, many / file.parent.name / f"{i:02}_{file.name}")
    arguments = [str(many), "--shards", "30", "--resize-shorter", "24"]
    assert main([arguments[0], str(tmp_path / "whole"), *arguments[1:], "--workers", "1"]) == 0
    command = [
        sys.executable,
        "-m",
        "jaxdali.pack",
        arguments[0],
        str(tmp_path / "killed"),
        *arguments[1:],
        "--workers",
        "2",
    ]
    run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(shards(tmp_path / "killed", "tar")) < 3 and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    times_of_shards = {p: os.stat(p).st_mtime_ns for p in shards(tmp_path / "killed", "tar")}
    assert 3 <= len(times_of_shards) < 30
    second_run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert second_run.returncode == 0, second_run.stderr
    num_kept = int(second_run.stdout.partition(" of 30 shards are there from an earlier run")[0])
    assert len(times_of_shards) - 2 <= num_kept <= len(times_of_shards)
    assert sum(os.stat(p).st_mtime_ns == time_ns for p, time_ns in times_of_shards.items()) == num_kept
    expected, killed = (shards(tmp_path / name, "tar") for name in ("whole", "killed"))
    assert [pathlib.Path(p).read_bytes() for p in killed] == [pathlib.Path(p).read_bytes() for p in expected]
    assert not list((tmp_path / "killed").glob("*.partial"))


def test_changed_shard_is_made_again(photos, tmp_path):
    arguments = [str(photos), str(tmp_path), "--shards", "2", "--workers", "1"]
    assert main(arguments) == 0
    first = pathlib.Path(shards(tmp_path, "tar")[0])
    content = first.read_bytes()
    first.write_bytes(content[:-512])
    assert main(arguments) == 0
    assert first.read_bytes() == content


@pytest.mark.parametrize(
    ("reader", "names"),
    [("tfrecord", "image/encoded,image/class/label"), ("webdataset", None), ("numpy", "array"), ("parquet", None)],
)
def test_records_of_other_readers(reader, names, photos, tmp_path):
    source = tmp_path / "source"
    if reader == "numpy":
        source.mkdir()
        arrays = [np.arange(6 + i, dtype=np.float32).reshape(2, -1)[:, : 3 + i // 2] for i in range(0, 4, 2)]
        for i, x in enumerate(arrays):
            np.save(source / f"{i}.npy", x)
        arguments = ["readers.numpy", f"file_root={source}", "--names", names]
    elif reader == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        source.mkdir()
        rows = files_of(photos)
        pyarrow.parquet.write_table(
            pa.table({"image": [x for x, _ in rows], "label": [y for _, y in rows]}), source / "rows.parquet"
        )
        arguments = ["readers.parquet", f"path={source}/rows.parquet", "columns=image,label"]
    else:
        options = ["--names", names] if names else []
        assert main([str(photos), str(source), "--format", reader, "--workers", "1", *options]) == 0
        (path,) = shards(source, "tfrecord" if reader == "tfrecord" else "tar")
        arguments = (
            ["readers.tfrecord", f"path={path}", "features=image/encoded:string,image/class/label:int64"]
            if reader == "tfrecord"
            else ["readers.webdataset", f"paths={path}", "ext=jpg;png,cls", "--names", "image,label"]
        )
    target = tmp_path / "target"
    assert main([*arguments, str(target), "--workers", "1"]) == 0
    (path,) = shards(target, "tar")
    with tarfile.open(path) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar}
    if reader == "numpy":
        for data, x in zip(members.values(), arrays, strict=True):
            np.testing.assert_array_equal(np.load(io.BytesIO(data)), x)
    else:
        data = [x for x, _ in files_of(photos)]
        assert [x for x in members.values() if len(x) > 10] == data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "out"], r"there is no reader 'nowhere'"),
        (
            ["readers.file", "file_rot=x", "out"],
            r"readers.file: got an unexpected argument 'file_rot'; did you mean 'file_root'",
        ),
        (["readers.file", "x", "out"], "expected key=value, an argument of the reader, got 'x'"),
        (["readers.file", "file_root=/nowhere/at/all", "out"], "/nowhere/at/all"),
        (["readers.file", "file_root=.", "shard_id=1", "out"], "shard_id is determined by the shards"),
        (["readers.file", "file_root=.", "on_error=skip", "out"], "use --on-error"),
        (["readers.video", "filenames=a.mp4", "out"], "decoded frames"),
        (["PHOTOS", "out", "--image", "picture"], "the outputs are image, label"),
        (["PHOTOS", "out", "--names", "a,b,c"], "gives 2 outputs: name each of them with --names"),
        (
            ["readers.tfrecord", "path=x", "features=a:text", "out"],
            "expected NAME:TYPE with one of int64, string, float32, got 'a:text'",
        ),
    ],
)
def test_wrong_arguments(arguments, message, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(photos) if a == "PHOTOS" else a for a in arguments]) == 2
    assert message in capsys.readouterr().err


def test_another_run_in_the_same_folder(photos, tmp_path, capsys):
    assert main([str(photos), str(tmp_path), "--workers", "1"]) == 0
    assert main([str(photos), str(tmp_path), "--workers", "1", "--resize-shorter", "8"]) == 2
    assert "holds shards of another run: resize_shorter is 8 now and was None" in capsys.readouterr().err


@pytest.mark.slow
def test_in_ray(photos, tmp_path):
    pytest.importorskip("ray")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "jaxdali.pack",
        str(photos),
        str(tmp_path / "out"),
        "--shards",
        "3",
        "--ray",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "11 records in 3 shards" in run.stdout, run.stderr
    assert main([str(photos), str(tmp_path / "here"), "--shards", "3", "--workers", "1"]) == 0
    shards_of_ray, expected = (shards(tmp_path / name, "tar") for name in ("out", "here"))
    assert [pathlib.Path(p).read_bytes() for p in shards_of_ray] == [pathlib.Path(p).read_bytes() for p in expected]
