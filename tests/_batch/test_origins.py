"""source_info of the outputs of operators, compared with DALI 2.4's for the same definitions."""

import io
import pathlib
import tarfile

import numpy as np
import pytest

from jaxdali import fn, math, pipeline_def, types
from jaxdali._data import list_source


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    for i in range(4):
        np.save(folder / f"n{i}.npy", np.full((2, 3, 1), i, np.uint8))
    return folder


def given(*samples):
    return fn.external_source(lambda: [np.asarray(x) for x in samples])


def flat(x):
    return fn.reshape(x, shape=[6])


def mean(x):
    return fn.cast(fn.reductions.mean(x), dtype=types.FLOAT)


# Definitions of an output from a, of the files 0 and 1, and b, of the files 1 and 2; and its source_info.
CASES = [
    (lambda a, b: fn.flip(a), "n0 n1"),
    (lambda a, b: fn.cat(a, b), " "),
    (lambda a, b: fn.cat(a, a), "n0 n1"),
    (lambda a, b: fn.cat(a, np.zeros((1, 3, 1), np.uint8)), "n0 n1"),
    (lambda a, b: fn.stack(a, b), " "),
    (lambda a, b: a + b, " "),
    (lambda a, b: (a + b) * 2, " "),
    (lambda a, b: 1 + a, "n0 n1"),
    (lambda a, b: given(np.uint8(1), np.uint8(2)) + a, "n0 n1"),
    (lambda a, b: math.clamp(a, 0, b), " "),
    (lambda a, b: fn.cast_like(a, b), " "),
    (lambda a, b: fn.rotate(a, angle=mean(b)), "n0 n1"),
    (lambda a, b: fn.normalize(a, mean=fn.cast(b, dtype=types.FLOAT)[:1, :1], axes=[0, 1]), "n0 n1"),
    (lambda a, b: a[fn.cast(mean(b) * 0, dtype=types.INT32)], "n0 n1"),
    (lambda a, b: fn.slice(a, fn.cast(flat(b), dtype=types.FLOAT)[:2] * 0, [1.0, 1.0]), " "),
    (lambda a, b: fn.random.choice(a, b), " "),
    (lambda a, b: fn.permute_batch(a, indices=[1, 0]), "n1 n0"),
    (lambda a, b: fn.permute_batch(fn.flip(a), indices=given(1, 1)), "n1 n1"),
    (lambda a, b: fn.multi_paste(a, output_size=[4, 4]), "n0 n1"),
    (lambda a, b: fn.multi_paste(a, b, a, output_size=[4, 4]), "n0;n1;n0 n1;n2;n1"),
    (lambda a, b: fn.multi_paste(a, in_ids=np.array([1, 0], np.int32), output_size=[4, 4]), "n1;n0 n1;n0"),
    (lambda a, b: fn.multi_paste(a, in_ids=given(np.int32([0, 1]), np.int32([1])), output_size=[4, 4]), "n0;n1 n1"),
    (lambda a, b: fn.python_function(a, b, function=np.add), " "),
    (lambda a, b: fn.python_function(a, function=np.negative), "n0 n1"),
    (lambda a, b: fn.get_property(fn.permute_batch(a, indices=[1, 0]), key="source_info"), "n1 n0"),
    (lambda a, b: given(1, 2), " "),
]


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_operators(folder, number, on_device):
    define, want = CASES[number]

    @pipeline_def(batch_size=2, num_threads=1, prefetch_queue_depth=1)
    def pipeline():
        a, b = (
            fn.reinterpret(
                fn.readers.numpy(files=[str(folder / f"n{(i + k) % 4}.npy") for i in range(4)]), layout="HWC"
            )
            for k in range(2)
        )
        return define(*(x.gpu() if on_device else x for x in (a, b)))

    assert names(pipeline(), folder) == [want.split(" ")]


def names(pipe, folder):
    infos = [
        [x.source_info().replace(f"{folder}/", "").replace(".npy", "") for x in output.as_cpu()]
        for output in pipe.run()
    ]
    pipe.close()
    return infos


def test_branches(folder):
    @pipeline_def(batch_size=4, num_threads=1, enable_conditionals=True)
    def pipeline():
        a, b = (fn.readers.numpy(files=[str(folder / f"n{(i + k) % 4}.npy") for i in range(4)]) for k in range(2))
        if fn.reductions.max(a) > 1:
            c, d = fn.permute_batch(a, indices=given(0, 0, 1, 0)), a
        else:
            c, d = a + b, b
        return c, d

    assert names(pipeline(), folder) == [["", "", "n3", "n2"], ["n1", "n2", "n2", "n3"]]


def test_names_are_made_when_read(folder, monkeypatch):
    """To make the names of small records takes longer than to read them."""
    requested = []
    monkeypatch.setattr(list_source, "redacted", lambda text: requested.append(text) or text)

    @pipeline_def(batch_size=2, num_threads=1, prefetch_queue_depth=1, enable_conditionals=True)
    def pipeline():
        a, b = (fn.readers.numpy(files=[str(folder / f"n{i}.npy") for i in range(4)]) for _ in range(2))
        c = fn.copy(a) if fn.reductions.max(a) > 0 else b
        return (
            a,
            a + b,
            c,
            fn.permute_batch(a, indices=[1, 0]),
            fn.multi_paste(fn.reinterpret(a, layout="HWC"), in_ids=[0], output_size=[4, 4]),
        )

    pipe = pipeline()
    pipe.build()
    requested.clear()
    outputs = pipe.run()
    assert requested == []
    infos = [[pathlib.Path(x.source_info()).stem for x in output] for output in outputs]
    assert infos == [*3 * [["n0", "n1"]], ["n1", "n0"], ["n0", "n0"]]
    pipe.close()


def test_readers(tmp_path):
    """Labels have none; the members of an archive have one each."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, size in (("f/0.cls", 3), ("f/0.jpg", 600), ("f/0.b.TXT", 5)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(b"x" * size))
    (tmp_path / "x.bin").write_bytes(b"12")

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline():
        file, label = fn.readers.file(files=[str(tmp_path / "x.bin")])
        extensions = ["jpg", "cls", "npy", "gif;b.txt"]
        members = fn.readers.webdataset(
            paths=str(tmp_path / "a.tar"),
            ext=extensions,
            case_sensitive_extensions=False,
            missing_component_behavior="empty",
        )
        one = fn.readers.webdataset(paths=str(tmp_path / "a.tar"), ext=["jpg", "b.TXT"])
        return file, label, label + 1, *members, *one

    with pytest.warns(UserWarning, match="there is no index"):
        pipe = pipeline()
        infos = names(pipe, tmp_path)
    of_archive = ["a.tar:1536:f/0.jpg", "a.tar:512:f/0.cls", "", "a.tar:3072:f/0.b.TXT"]
    assert [n for (n,) in infos] == ["x.bin", "", "", *of_archive, of_archive[0], of_archive[3]]
