"""What becomes of data sets that are damaged, changed or not to be read: an error that names file and record, or another record."""

import collections
import os
import pathlib
import re
import shutil
import tempfile

import pytest
from data_sets import MAKERS, READERS, SIZE, Shards, failing, replaced
from faulty import Faulty
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxdali


@pytest.mark.parametrize("name", [name for name in READERS if MAKERS[name].urls])
def test_no_permission_is_said_at_once(data_sets, name):
    """Of a store: when the list is made, or of the record; and it is not asked again."""
    data_sets(name)  # before its files are copied
    arguments = {**data_sets.remote(name), "storage": jaxdali.Storage(read_ahead=0)}
    Faulty.fault = staticmethod(lambda file, number: PermissionError(13, "Permission denied"))
    try:
        _, errors = failing(name, arguments)
    except RuntimeError as e:
        errors = [str(e)]
    assert errors
    for e in errors:
        assert re.search(rf"readers.{name}.*faulty://.*Permission denied", e)
    assert max(collections.Counter(Faulty.requests).values()) == 1


@pytest.mark.parametrize("name", READERS)
def test_no_permission_for_files(data_sets, name):
    """Of local files, which root may read: it gives up its rights meanwhile."""
    source = data_sets(name)
    with tempfile.TemporaryDirectory() as top:
        shutil.copytree(data_sets.folder(name), f"{top}/{name}")
        arguments = replaced(source, str(data_sets.folder(name)), f"{top}/{name}")
        assert failing(name, source, 1) == (1, [])  # also imports what is needed
        for path in [p for p in pathlib.Path(top).rglob("*") if p.is_file()]:
            path.chmod(0)
        pathlib.Path(top).chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            good, errors = failing(name, arguments)
        except RuntimeError as e:
            good, errors = 0, [str(e)]
        finally:
            os.seteuid(user)
        assert (good, bool(errors)) == (0, True)
        for e in errors:
            assert re.search(rf"readers.{name}.*{top}/{name}.*Permission denied", e)


# What may be wrong with a file, of which there is more than one in most data sets: (kind, which, where, value).
KINDS = ["bit", "byte", "cut", "out", "twice", "zeros", "grow"]
damage = st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 9999), st.integers(0, 255))
CHECKED = {"array_record", "tfrecord", "zip"}  # what the first output has is what was written: it has a checksum


def spoil(data: bytearray, kind: str, at: int, value: int):
    match kind:
        case "bit":
            data[at] ^= 1 << value % 8
        case "byte":
            data[at] = value
        case "cut":
            del data[at:]
        case "out":
            del data[at : at + 1 + value % 16]
        case "twice":
            data[at:at] = data[at : at + 1 + value % 16]
        case "zeros":
            data[at : at + value] = bytes(len(data[at : at + value]))
        case "grow":
            data += bytes([value]) * (1 + value % 16)


@pytest.mark.filterwarnings("ignore::UserWarning")
# LMDB's library trusts its pages: the messages in them are damaged by ffi/fuzz/fuzz_records.cc.
@pytest.mark.parametrize("name", [name for name in READERS if not name.startswith("caffe")])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wrong=damage, end=st.booleans())
def test_damage_is_an_error_that_names_the_file_or_changes_a_record(data_sets, pool, name, wrong, end):
    kind, which, where, value = wrong
    arguments = data_sets(name)
    top = pathlib.Path(data_sets.folder(name))
    with tempfile.TemporaryDirectory() as other:
        shutil.copytree(top, other, dirs_exist_ok=True)
        files = sorted(p for p in pathlib.Path(other).rglob("*") if p.is_file() and p.stat().st_size)
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        first = len(data) * 49 // 50 if end else 0  # tables are at the end of many a container
        spoil(data, kind, first + (len(data) - first) * where // 10000, value)
        path.write_bytes(data)

        def names_a_file(text: str) -> bool:
            return other in text or any(p.name in text for p in files)

        try:
            shards = Shards(name, replaced(arguments, str(top), other), pool, 1)
        except RuntimeError as e:
            assert names_a_file(str(e)), e  # noqa: PT017
            return
        found = set()
        for _ in range(SIZE):
            failed: dict[int, str] = {}
            (((_, _, record),),) = shards.read(1, failed)
            assert all(map(names_a_file, failed.values())), failed
            found |= {record[0]} if not failed else set()
        shards.close()
        if name in CHECKED and path.suffix != ".idx":
            (expected,) = Shards(name, arguments, pool, 1).epochs(1, 1)
            assert found <= {x[2][0] for x in expected}
