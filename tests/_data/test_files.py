"""Native reading of files, which are indices into a table."""

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
