"""readers.array_record: files that the array_record package wrote (tests/data/array_record.json), damaged ones, large
tables.
"""

import base64
import hashlib
import json
import sys
import zlib

import counts
import numpy as np
import places
import pytest
import riegeli

from jaxdali import SampleError, Storage, _cpu, fn, pipeline_def
from jaxdali._data.array_record import _decompress, chunk_table, joined, logical, physical, records_of
from jaxdali._data.files import Files

FILES = {
    k: zlib.decompress(base64.b64decode(v))
    for k, v in json.loads((places.ROOT / "tests/data/array_record.json").read_text()).items()
}
RECORDS = [
    b"",
    b"one",
    *(bytes([i]) * (i * 37 % 300) for i in range(60)),
    bytes(range(256)) * 600,
    b"x" * 65000,
    b"last",
]


def read(path, n, batch_size=None, **kwargs):
    @pipeline_def(batch_size=batch_size or n, num_threads=2, seed=1)
    def pipeline():
        return fn.readers.array_record(path=path, **kwargs)

    pipe = pipeline()
    samples = [x for _ in range(n // (batch_size or n)) for x in pipe.run()[0]]
    pipe.close()
    return [np.asarray(x).tobytes() for x in samples], [x.source_info() for x in samples]


@pytest.mark.parametrize("options", [o for o in FILES if "transpose" not in o])
def test_files_of_the_package_are_read(tmp_path, options):
    if "brotli" in options:
        pytest.importorskip("pyarrow")
    elif "uncompressed" not in options:
        pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    path.write_bytes(FILES[options])
    records, names = read(path, len(RECORDS))
    assert records == RECORDS
    assert names[3] == f"{path}, record 3"
    shuffled, names = read([path, path], 2 * len(RECORDS), shuffle="global")
    assert shuffled == [RECORDS[int(name.rsplit(" ", 1)[1])] for name in names]
    assert sorted(shuffled) == sorted(2 * RECORDS)


def test_transposed_files_are_refused(tmp_path):
    path = tmp_path / "x.array_record"
    path.write_bytes(next(data for o, data in FILES.items() if "transpose" in o))
    with pytest.raises((RuntimeError, SampleError), match=r"x.array_record.*transpose:true"):
        read(path, 4)


@pytest.mark.parametrize("options", [o for o in FILES if "brotli" in o])
def test_missing_package_for_brotli_is_named(tmp_path, options, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "x.array_record"
    path.write_bytes(FILES[options])
    with pytest.raises(
        ImportError, match=r"Brotli of ArrayRecord files needs pyarrow: pip install \"jaxdali\[parquet\]\""
    ):
        read(path, 4)


def test_snappy(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.array_record"
    for group in (1, 7):
        riegeli.array_record(path, RECORDS, group, compression="snappy")
        assert read(path, len(RECORDS))[0] == RECORDS


@pytest.mark.parametrize("compression", ["brotli", "snappy"])
def test_chunks_with_wrong_sizes_are_refused(compression):
    pa = pytest.importorskip("pyarrow")
    packed = pa.compress(bytes(5000), codec=compression, asbytes=True)
    for stated in (4999, 5001, 1, 1 << 29, 1 << 40):
        with pytest.raises(ValueError, match=r"chunk.*(has|can't be decompressed|too large)"):
            _unpack(compression, packed, stated)
    for cut in range(len(packed)):
        with pytest.raises(ValueError, match=r"chunk|a number is damaged"):
            _unpack(compression, packed[:cut], 5000)
    assert _unpack(compression, packed, 5000) == bytes(5000)


def _unpack(compression, packed, size):
    return bytes(_decompress(ord(compression[0]), memoryview(riegeli.varint(size) + packed), Storage()))


@pytest.mark.parametrize("compression", ["", "zstd", "brotli", "snappy"])
@pytest.mark.parametrize("group", [1, 4])
def test_too_large_records_are_refused(tmp_path, compression, group):
    if compression:
        pytest.importorskip("zstandard" if compression == "zstd" else "pyarrow")
    path = tmp_path / "x.array_record"
    records = [b"a", b"b", b"c", b"d", bytes(200_000), b"f", b"g", b"h"]
    riegeli.array_record(path, records, group, compression=compression)
    storage = Storage(max_record_bytes=100_000)
    assert read(path, 4, storage=storage)[0] == records[:4]
    with pytest.raises(
        SampleError, match=r"x.array_record.*20\d\d\d\d bytes, Storage\(max_record_bytes=100000\) allows no more"
    ):
        read(path, 8, storage=storage)
    assert read(path, 8)[0] == records


def test_bombs_are_refused_before_decompression(tmp_path):
    pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    riegeli.array_record(path, [bytes(64 << 20)], compression="zstd")
    with counts.allocations() as memory, pytest.raises(SampleError, match="max_record_bytes=1000000"):
        read(path, 1, storage=Storage(max_record_bytes=1_000_000))
    assert memory.most < 30 << 20


def test_positions():
    data = bytearray()
    for position in range(3 * 65536 + 100):
        if position % 65536 >= 24:
            assert logical(position) == len(data)
            assert physical(len(data)) == position
            data.append(position % 251)
    raw = bytes(position % 251 for position in range(3 * 65536 + 100))
    for start, size in ((0, 100), (70, 10), (65536, 65536), (65530, 40), (100, 3 * 65536)):
        end = start + size
        assert joined(raw[start:end], start) == bytes(data[int(logical(np.int64(start))) : int(logical(np.int64(end)))])


def damaged(tmp_path, change):
    data = bytearray(FILES["group_size:16,zstd:5"])
    change(data)
    path = tmp_path / "x.array_record"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda d: d.__delitem__(slice(1000, None)),
            "it has 1000 bytes: it is not an ArrayRecord file, or it is cut off",
        ),
        (lambda d: d.__delitem__(slice(-65536, None)), "x.array_record: "),
        (lambda d: d.__setitem__(slice(-65536, None), bytes(65536)), "the checksum of a chunk's header is wrong"),
        (lambda d: d.__setitem__(slice(0, None), bytes(65536)), "the checksum of a chunk's header is wrong"),
    ],
)
def test_other_files_are_refused(tmp_path, change, text):
    with pytest.raises(RuntimeError, match=text):
        read(damaged(tmp_path, change), 4)


def test_a_damaged_chunk_is_named(tmp_path):
    pytest.importorskip("zstandard")
    path = damaged(tmp_path, lambda d: d.__setitem__(slice(120, 140), bytes(20)))
    with pytest.raises(SampleError, match=r"x\.array_record, \d+ bytes from 64 on: the checksum of a chunk is wrong"):
        read(path, 4)


# Of https://github.com/google/highwayhash, c/highwayhash_test.c: the bytes 0, 1, 2, ..., so many of them.
HASHES = {
    0: 0x907A56DE22C26E53, 1: 0x7EAB43AAC7CDDD78, 2: 0xB8D0569AB0B53D62, 3: 0x5C6BEFAB8A463D80, 4: 0xF205A46893007EDA,
    15: 0x40793F86A449F33B, 16: 0xCFAB3489F97EB832, 17: 0x19FE67D2C8C5C0E2, 18: 0x04DD90A69C565CC2, 31: 0x9FC7007CCF035A68,
    32: 0xA0C964D9ECD580FC, 33: 0x2C90F73CA03181FC, 38: 0x5E42FE712A5CD9B4, 40: 0x7FA522D75E2D637D,
}  # fmt: skip


def test_highway_hash_is_as_published():
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110, 0x1F1E1D1C1B1A1918)
    assert {n: _cpu.highway_hash(np.arange(n, dtype=np.uint8), key) for n in HASHES} == HASHES


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (3, "the checksum of (its|a) chunk's header is wrong"),
        (30, "the checksum of (its|a) chunk's header"),
        (60, "checksum"),
    ],
)
def test_wrong_checksums_are_errors_of_their_records(tmp_path, zstd, offset, message):
    if zstd:
        pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    riegeli.array_record(path, [b"%d" % i * 50 for i in range(4)], zstd=zstd)
    data = bytearray(path.read_bytes())
    start = int(physical(chunk_table(Files.of(path, None), 0, hashlib.sha256()).start[2]))  # of record 2
    data[start + offset] ^= 1
    path.write_bytes(data)

    @pipeline_def(batch_size=1, num_threads=1, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.array_record(path=path)

    pipe = pipeline()
    contents = []
    for i in range(8):  # the second time, too
        if i % 4 == 2:
            with pytest.raises(SampleError, match=rf"x\.array_record, (.*record 2|.* bytes from {start}).*{message}"):
                pipe.run()
        else:
            contents.append(np.asarray(pipe.run()[0][0]).tobytes())
    assert contents == 2 * [b"%d" % i * 50 for i in (0, 1, 3)]
    pipe.close()


@pytest.mark.parametrize("zstd", [False, True])
def test_changed_files_are_noticed(tmp_path, zstd):
    if zstd:
        pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    riegeli.array_record(path, [b"a" * 10] * 20, zstd=zstd)

    @pipeline_def(batch_size=4, num_threads=2, prefetch_queue_depth=1)
    def pipeline():
        return fn.readers.array_record(path=path)

    pipe = pipeline()
    pipe.build()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SampleError, match=r"x\.array_record.*its size changed after it was opened"):
        pipe.run()
    pipe.close()


@pytest.mark.parametrize("seed", range(3))
def test_damage_never_does_more_than_an_error(tmp_path, seed):
    rng = np.random.default_rng(seed)
    whole = FILES["group_size:7,uncompressed"]
    for k in range(60):
        data = bytearray(whole)
        places = (
            rng.integers(0, len(data), 4)
            if k % 2
            else np.concatenate([rng.integers(len(data) - 65536, len(data) - 65400, 2)])
        )
        for place in places.tolist():
            data[place] = rng.integers(256)
        path = tmp_path / "x"
        path.write_bytes(data)
        try:
            table = chunk_table(Files.of(path, None), 0, hashlib.sha256())
            for start in physical(table.start).tolist():
                records_of(joined(bytes(data[start : physical(table.end)]), start))
        except (ValueError, KeyError, IndexError, AttributeError):
            pass


def wrong_table(path, options=b"uncompressed", footer=None, **row):
    """Writes a file of one record whose table has wrong numbers, under right checksums."""
    out = riegeli.Blocks()
    out.add(riegeli.header(b"", ord("s")))
    fields = {"position": out.add(riegeli.chunk([b"abcde"])), "size": 5, "records": 1} | row
    metadata = riegeli.field(1, riegeli.field(4, b"group_size:1,transpose:false," + options))
    begin = out.add(riegeli.chunk([metadata, b"".join(riegeli.field(k, x) for k, x in enumerate(fields.values(), 1))]))
    out.fill()
    postscript = begin if footer is None else footer
    out.add(riegeli.chunk([riegeli.field(1, postscript) + riegeli.field(2, 0x71930E704FDAE05E)]))
    out.fill()
    path.write_bytes(out.data)


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 2**63 - 1},  # the loop over shards did not end
        {"records": 2**18},
        {"records": 2**31, "options": b"zstd:3"},  # 16 GB for their order
        {"records": 2**63},
        {"size": 2**63},
        {"position": b"ab"},
        {"footer": b"ab"},
        {"footer": 2**63},
        {"footer": 1 << 17},
    ],
)
def test_wrong_tables_are_errors_of_their_file(tmp_path, wrong):
    path = tmp_path / "x.array_record"
    wrong_table(path, **wrong)
    with pytest.raises(RuntimeError, match=r"x.array_record: the table of its chunks is damaged"):
        read(path, 1)


@pytest.mark.parametrize("zstd", [False, True])
def test_large_tables_are_parsed_in_parts(tmp_path, monkeypatch, zstd):
    if zstd:
        pytest.importorskip("zstandard")
    path = tmp_path / "x.array_record"
    sizes = [i * i % 700 for i in range(200)]
    riegeli.array_record(path, [bytes([i]) * n for i, n in enumerate(sizes)], group=3, zstd=zstd)
    monkeypatch.setattr("jaxdali._data.array_record._AT_ONCE", 7)
    monkeypatch.setattr("jaxdali._data.array_record._PART", 50)
    digest = hashlib.sha256()
    table = chunk_table(Files.of(path, None), 0, digest)
    assert table.size.tolist() == [sum(sizes[i : i + 3]) for i in range(0, 200, 3)]
    assert table.records.tolist() == [3] * 66 + [2]
    rows = np.stack([physical(table.start), table.size, table.records], axis=1)
    assert digest.digest() == hashlib.sha256(rows.astype(np.int64).tobytes()).digest()
    data = path.read_bytes()
    ends = [*table.start[1:].tolist(), table.end]
    records = [
        bytes(x)
        for start, end in zip(table.start.tolist(), ends)
        for x in records_of(joined(data[physical(start) : physical(end)], int(physical(start))))
    ]
    assert records == [bytes([i]) * n for i, n in enumerate(sizes)]


def test_tables_inflate_to_their_stated_size(tmp_path, monkeypatch):
    zstandard = pytest.importorskip("zstandard")
    sizes, values = (
        riegeli.varint(len(x)) + zstandard.ZstdCompressor().compress(x) for x in (b"\x0a\x05", bytes(1 << 27))
    )
    data = b"z" + riegeli.varint(len(sizes)) + sizes + values
    out = riegeli.Blocks()
    out.add(riegeli.header(b"", ord("s")))
    footer = out.add(riegeli.header(data, ord("r"), 2, 15) + data)
    out.fill()
    out.add(riegeli.chunk([riegeli.field(1, footer) + riegeli.field(2, 0x71930E704FDAE05E)]))
    out.fill()
    (tmp_path / "x").write_bytes(out.data)
    monkeypatch.setattr("jaxdali._data.array_record._PIECE", 100)
    text = r"a chunk's records have \d+ bytes or more, 15 were expected"
    with counts.allocations() as memory, pytest.raises(ValueError, match=text):
        chunk_table(Files.of(tmp_path / "x", None), 0, hashlib.sha256())
    assert memory.most < 1 << 24


def test_chunks_inflate_to_their_stated_size():
    zstandard = pytest.importorskip("zstandard")

    def chunk(stated: int, packed: bytes) -> bytes:
        sizes = riegeli.varint(5) + zstandard.ZstdCompressor().compress(riegeli.varint(1 << 30))
        data = b"z" + riegeli.varint(len(sizes)) + sizes + riegeli.varint(stated) + packed
        return riegeli.header(data, ord("r"), 1, 1 << 30) + data

    large = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 20)))
    size_at = large.index((1 << 20).to_bytes(4, "little"))
    large[size_at : size_at + 4] = (1 << 30).to_bytes(4, "little")  # which zstd would make memory for
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    with counts.allocations() as memory:
        for stated, packed, text in (
            (1 << 30, large, "can't be decompressed|1048576 bytes"),
            (1 << 20, large, "zstd's header says 1073741824"),
            (1 << 30, sizeless, "1048576 bytes"),
            (1 << 10, sizeless, "1024 were expected|can't be decompressed"),
        ):
            with pytest.raises(ValueError, match=text):
                records_of(chunk(stated, bytes(packed)))
    assert memory.most < 8 << 20
