"""Native reading of files, which are indices into a table."""

import io
import os
import sys
import tarfile
import threading
import time

import numpy as np
import pytest

from jaxdali import _cpu
from jaxdali._data.files import matcher

READ = {
    "read_files": lambda *args: _cpu.read_files(*args[:-1], _cpu.OpenFiles(), args[-1]),
    "read_files_behind": lambda table, index, data, *args: _cpu.read_files_behind(table, index, b"a", data, *args),
    "read_ranges": lambda table, index, data, start, size, error, *args: error.fill(
        len(_cpu.read_ranges(table, index, start, data, start, size, size + 1, *args))
    ),
    "read_packed_ranges": lambda table, index, data, start, size, error, *args: error.fill(
        len(
            _cpu.read_packed_ranges(
                table, index, start, size, start, data[None], np.zeros(1, np.int32), 0, size + 1, *args
            )
        )
    ),
}


@pytest.mark.parametrize("name", READ)
def test_missing_files_of_a_table(tmp_path, name):
    (tmp_path / "x").write_bytes(b"a" if name == "read_files" else b"ab")
    table = _cpu.FileTable(bytes(tmp_path), b"x", np.array([1]))
    data, start, size, error = np.zeros(1, np.uint8), np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(1, np.int32)
    pool = _cpu.pool_create(1)
    try:
        READ[name](table, np.zeros(1, np.int64), data, start, size, error, pool)
        assert (error[0], data[0]) == (0, ord("b" if name == "read_files_behind" else "a"))
        for i in (-1, 1):
            with pytest.raises(ValueError, match="there is no such file"):
                READ[name](table, np.array([i]), data, start, size, error, pool)
    finally:
        _cpu.pool_destroy(pool)


@pytest.mark.parametrize(
    ("pattern", "num_matches"),
    [
        ("Ärger.jpg", 2),
        ("*ärger.JPG", 1),
        ("ÄRGER.JP?", 1),
        ("[ä]rger.jpg", 1),
        ("[!ä]rger.jpg", 1),
        ("?rger.jpg", 2),
        ("??rger.jpg", 2),
        ("???rger.jpg", 0),
        ("*.jpg", 2),
        ("*.Ä", 0),
    ],
)
def test_filters_of_other_letters(pattern, num_matches):
    """How many of both settings of `case_sensitive_filter` find the file Ärger.jpg in DALI 2.4 (in UTF-8)."""
    assert sum(matcher([pattern], is_sensitive)("Ärger.jpg".encode()) for is_sensitive in (False, True)) == num_matches


@pytest.mark.parametrize("read", [_cpu.read_ranges, _cpu.read_blocked])
def test_ranges_outside_their_file(tmp_path, read):
    (tmp_path / "x").write_bytes(bytes(100))
    table, pool = _cpu.FileTable(bytes(tmp_path), b"x", np.array([1])), _cpu.pool_create(1)
    offsets = np.array([50, 99, 2**63 - 1])
    places, data = np.array([0, 2, 4]), np.ones(6, np.uint8)
    try:
        failed = read(table, np.zeros(3, np.int64), offsets, data, places, np.full(3, 2), np.array([100]), pool)
    finally:
        _cpu.pool_destroy(pool)
    assert failed == [(1, _cpu.SIZE_CHANGED), (2, _cpu.SIZE_CHANGED)]


def test_shape_of_too_many_values():
    layout = _cpu.RecordLayout(_cpu.RecordFormat.EXAMPLE, ["x"], 1)
    arguments = ("x", "int64", 0, _cpu.ValueType.INTS, 8, _cpu.RecordShape.ROWS)
    layout.add_output(*arguments, [-1, 2**30, 2**30], b"")
    with pytest.raises(ValueError, match="an output"):
        layout.add_output(*arguments, [-1, 2**32, 2**32], b"")


def test_no_descriptor_is_left(tmp_path):
    """By files that are opened twice with one object, and by an interrupt while an archive is read."""
    (tmp_path / "x").write_bytes(tarfile.TarInfo("sample.bin").tobuf())
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in "abc":
            info = tarfile.TarInfo(name)
            info.size = 9 << 20
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    table = _cpu.FileTable(bytes(tmp_path), b"x", np.array([1]))
    sizes, errors, opened = np.zeros(1, np.int64), np.zeros(1, np.int32), _cpu.OpenFiles()
    pool, descriptors = _cpu.pool_create(1), len(os.listdir("/dev/fd"))
    try:
        for _ in range(2):
            _cpu.file_sizes(table, np.zeros(1, np.int64), sizes, errors, opened, pool)
        del opened
        with pytest.raises(ZeroDivisionError):
            _cpu.tar_index(os.fsencode(tmp_path / "a.tar"), lambda size: 1 // 0)
        assert len(os.listdir("/dev/fd")) == descriptors
    finally:
        _cpu.pool_destroy(pool)


@pytest.fixture
def archive(tmp_path):
    """The path of an archive of 40,000 empty files."""
    (tmp_path / "a.tar").write_bytes(tarfile.TarInfo("sample.bin").tobuf() * 40_000 + bytes(1024))
    return os.fsencode(tmp_path / "a.tar")


def samples():
    return _cpu.TarSamples([["bin"]], False, _cpu.Missing.EMPTY, False)


@pytest.mark.parametrize(
    "read",
    [
        lambda archive: samples().scan(archive),
        lambda archive: samples().parse(b"bin 512 0 sample.bin\n" * 200_000, 4, 0),
        lambda archive: _cpu.tar_index(archive, lambda size: None),
    ],
    ids=["scan", "parse", "tar_index"],
)
def test_other_threads_run_while_archives_are_read(archive, read):
    count, is_done, interval = 0, False, sys.getswitchinterval()

    def work():
        nonlocal count
        while not is_done:
            count += 1
            time.sleep(0.0001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        sys.setswitchinterval(60)  # so that the lock changes hands only where its owner releases it
        start = count
        for _ in range(100):  # the other thread may have to wait for a processor
            read(archive)
            if count > start:
                break
        assert count > start
    finally:
        is_done = True
        sys.setswitchinterval(interval)
        thread.join()
