"""readers.parquet: types of columns, images as Hugging Face writes them, Arrow files, errors."""

import contextlib
import struct

import numpy as np
import pytest

from jaxdali import SampleError, Storage, fn, pipeline_def
from jaxdali.fn.readers import _parquet
from jaxdali.fn.readers._columns import column_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def read(n, columns, path, **kwargs):
    @pipeline_def(batch_size=n, num_threads=2)
    def pipeline():
        nodes = fn.readers.parquet(path=path, columns=columns, **kwargs)
        return tuple(nodes) if isinstance(nodes, list) else (nodes,)

    with contextlib.closing(pipeline()) as pipe:
        return [[np.asarray(x) for x in output] for output in pipe.run()]


COLUMNS = {
    "i8": pa.array([1, -2, 3, 4, 5], pa.int8()),
    "u64": pa.array([1, 2, 2**63, 4, 5], pa.uint64()),
    "f16": pa.array(np.array([1, 2, 3, 4, 0.5], np.float16)),
    "f64": pa.array([1.5, 2, 3, 4, 5], pa.float64()),
    "bool": pa.array([True, False, True, True, False]),
    "text": pa.array(["", "a", "ä", "b" * 1000, "c"]),
    "large": pa.array([b"1", b"22", b"", b"4", b"5"], pa.large_binary()),
    "category": pa.array(["x", "y", "x", "x", "y"]).dictionary_encode(),
    "list": pa.array([[1], [], [2, 3], [4], [5, 6, 7]], pa.list_(pa.int32())),
    "string_view": pa.array(["", "a", "ä", "b" * 1000, "of 13 letters"], pa.string_view()),
    "binary_view": pa.array([b"1", b"22", b"", b"4" * 100, b"5"], pa.binary_view()),
    "three": pa.array([[i, i + 0.5, -i] for i in range(5)], pa.list_(pa.float32(), 3)),
    "bits": pa.array([[True], [], [False, True], [True], [False]], pa.list_(pa.bool_())),
}


def expected(column):
    for x in column.to_pylist():
        if isinstance(x, str):
            x = x.encode()
        kind = getattr(column.type, "value_type", column.type)
        yield np.frombuffer(x, np.uint8) if isinstance(x, bytes) else np.array(x, kind.to_pandas_dtype())


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_types(tmp_path, form):
    table, path = pa.table(COLUMNS), str(tmp_path / "x")
    if form == "parquet":
        table = table.drop_columns(["string_view", "binary_view"])  # pyarrow writes none of these
        pq.write_table(table, path, row_group_size=2)
    else:
        with (
            pa.OSFile(path, "wb") as f,
            {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[form](f, table.schema) as writer,
        ):
            writer.write_table(table, max_chunksize=2)
    outputs = read(5, table.column_names, path)
    for name, output in zip(table.column_names, outputs):
        column = COLUMNS[name]
        for x, y in zip(output, expected(column), strict=True):
            assert x.dtype == y.dtype, name
            assert x.shape == y.shape
            assert (x == y).all()


def test_images_have_bytes_or_a_path(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/1.jpg").write_bytes(b"from the path")
    images = [{"bytes": b"inside", "path": "0.jpg"}, {"bytes": None, "path": "images/1.jpg"}]
    pq.write_table(pa.table({"image": images, "label": [7, 8]}), tmp_path / "x.parquet")
    images, labels = read(2, ["image", "label"], tmp_path / "*.parquet")
    assert [x.tobytes() for x in images] == [b"inside", b"from the path"]
    assert [(int(x), x.shape, x.dtype) for x in labels] == [(7, (), np.int64), (8, (), np.int64)]


def test_errors(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": [1, None, 3, 4], "when": pa.array([0, 1, 2, 3], pa.timestamp("s"))}), path)
    with pytest.raises(SampleError, match=r"x\.parquet, row 1: column 'n': it is null"):
        read(2, "n", path)
    with pytest.raises(RuntimeError, match=r"x\.parquet: there is no column 'm'; it has n, when"):
        read(2, "m", path)
    with pytest.raises(
        RuntimeError, match=r"x\.parquet: column 'when' is of type timestamp\[ms\]; supported are numbers, strings"
    ):
        read(2, "when", path)
    second_path = tmp_path / "y.parquet"
    pq.write_table(pa.table({"n": [1.5]}), second_path)
    with pytest.raises(RuntimeError, match=r"y\.parquet: its columns differ in type from those of .*x\.parquet"):
        read(2, "n", [path, second_path])
    for damaged in (path.read_bytes()[:-20], b"PAR1" + bytes(40), b"", b"nothing of the kind"):
        path.write_bytes(damaged)
        with pytest.raises(RuntimeError, match=r"x\.parquet: "):
            read(2, "n", path)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 3)])
def test_nulls_in_lists_fail_their_rows(tmp_path, kind):
    path = tmp_path / "x.parquet"
    rows = [[1, 2, 3], [1, None, 3], None, [4, 5, 6], [7, 8, 9]]
    pq.write_table(pa.table({"x": pa.array(rows, kind)}), path)
    for skipped, message in ((1, "one of its numbers is null"), (2, "it is null")):
        with pytest.raises(SampleError, match=rf"x\.parquet, row {skipped}: column 'x': {message}"):
            read(1, "x", path, num_shards=5, shard_id=skipped)
    rows_read = read(3, "x", path, on_error="replace")[0]
    assert [x.tolist() for x in rows_read] == [[1, 2, 3], [7, 8, 9], [4, 5, 6]]
    part = column_of(pa.array(rows, kind)[3:], lambda name: b"")  # the nulls are those of other rows
    assert part.valid is None
    assert [part.row(i).tolist() for i in range(2)] == rows[3:]


@pytest.mark.parametrize("form", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("wrong", [[0, 7, 1 << 30], [0, -7, 11], [0, 12, 11]])
def test_wrong_offsets_fail_their_group(tmp_path, form, wrong):
    """For Arrow's tables, which are used as they are in the file."""
    path, good = tmp_path / "x.arrow", [list(range(7)), [8, 9, 10, 11]]
    table = pa.table({"x": [[1], [2, 3], *good]})
    with pa.OSFile(str(path), "wb") as f, form(f, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    data, offsets = path.read_bytes(), np.int32([0, 7, 11]).tobytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, np.int32(wrong).tobytes()))
    assert [x.tolist() for x in read(2, "x", path)[0]] == [[1], [2, 3]]
    with pytest.raises(SampleError, match=r"x\.arrow, row [23]: "):
        read(2, "x", path, num_shards=2, shard_id=1)


@pytest.fixture
def groups_read(monkeypatch):
    """A list to which (table, group) of each decoded group is appended."""
    groups, original = [], _parquet._Table.read
    monkeypatch.setattr(
        _parquet._Table,
        "read",
        lambda table, group, *args: [groups.append((table, group)), original(table, group, *args)][1],
    )
    return groups


def test_the_cache_counts_encoded_sizes(tmp_path, monkeypatch, groups_read):
    rows = [b"a" * 10000] * 4 + [b"b" * 10000] * 4  # a dictionary of one word in each group
    pq.write_table(pa.table({"x": pa.array(rows).dictionary_encode()}), tmp_path / "x.parquet", row_group_size=4)

    def groups(limit):
        monkeypatch.setattr(_parquet, "_CACHE_BYTES", limit)
        groups_read.clear()

        @pipeline_def(batch_size=4, num_threads=1)
        def pipeline():
            return fn.readers.parquet(path=tmp_path / "x.parquet", columns="x")

        pipe = pipeline()
        for _ in range(4):
            pipe.run()
        pipe.close()
        return [group for _, group in groups_read]

    assert groups(60_000)[:4] == [0, 1, 0, 1]
    assert groups(90_000) == [0, 1]


def test_fetched_parts_are_released(groups_read):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    with memory.open("/parquet/x.parquet", "wb") as f:
        pq.write_table(pa.table({"x": list(range(10))}), f, row_group_size=5)
    assert [int(x) for x in read(10, "x", "memory://parquet/x.parquet")[0]] == list(range(10))
    assert {group for _, group in groups_read} == {0, 1}
    assert [table._remote_file.fetched for table, _ in groups_read] == [{}, {}]


def test_a_damaged_group_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"data": [bytes([i]) * 1000 for i in range(8)]}),
        path,
        row_group_size=4,
        use_dictionary=False,
        compression="zstd",
    )
    data = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[place : place + 30] = bytes(30)
    path.write_bytes(data)
    with pytest.raises(SampleError, match=r"x\.parquet, row 4: "):
        read(8, "data", path)


def test_checksums_of_pages_are_checked(tmp_path):
    table = pa.table({"x": [b"record %d" % i for i in range(100)]})
    pq.write_table(table, tmp_path / "x.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content.replace(b"record 77", b"rEcord 77"))

    @pipeline_def(batch_size=1)
    def pipeline():
        return fn.readers.parquet(path=tmp_path / "x.parquet", columns="x")

    with pytest.raises(SampleError, match=r"x.parquet, row 0: .*CRC"):
        pipeline().run()


VIEWS = pa.array([b"x" * 1000] * 3, pa.binary_view())
IMAGE = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])


def test_views_in_images_dictionaries_and_parts(tmp_path):
    """As polars writes them by default: null ones, in structs, as dictionaries, and of arrays that begin in the middle."""
    (tmp_path / "beside").write_bytes(b"beside")
    views = pa.array([None, "short", "longer than twelve letters"] * 2, pa.string_view())
    columns = {
        "image": pa.array([{"bytes": b"1" * 50, "path": None}, {"bytes": None, "path": "beside"}], IMAGE),
        "sliced": views.slice(1, 2),
        "category": pa.DictionaryArray.from_arrays(pa.array([2, 1]), views),
    }
    table, path = pa.table(columns), str(tmp_path / "x.arrow")
    with pa.OSFile(path, "wb") as f, pa.ipc.new_file(f, table.schema) as writer:
        writer.write_table(table)
    outputs = [[x.tobytes() for x in output] for output in read(2, list(columns), path)]
    assert outputs == [
        [b"1" * 50, b"beside"],
        [b"short", b"longer than twelve letters"],
        [b"longer than twelve letters", b"short"],
    ]


@pytest.mark.parametrize(
    ("form", "column"),
    [
        ("zstd", pa.array([bytes(1000)] * 100)),
        ("none", pa.array([bytes(1000)] * 100)),  # one value in a dictionary
        (
            "none",
            pa.array(
                [{"bytes": bytes(1000), "path": None}] * 100, pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            ),
        ),
        ("none", pa.array([None] * 20_000, pa.int64())),
        ("delta", pa.array([bytes(1000)] * 100)),
        ("arrow", pa.array(["x" * 1000] * 100)),
        ("arrow", pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array(["x" * 1000]))),
        ("arrow", pa.DictionaryArray.from_arrays(pa.array([0] * 100), VIEWS)),
        ("arrow", pa.array(np.zeros(20_000))),
        *(
            (form, column)
            for form in ("zstd file", "lz4 file", "zstd stream")
            for column in (
                pa.array(["x" * 1000] * 100),
                pa.array(np.zeros(20_000)),
                pa.array([[1] * 500] * 100),
                pa.array(["x" * 1000] * 100, pa.string_view()),
                pa.array(
                    [{"bytes": bytes(1000), "path": None}] * 100,
                    pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
                ),
                pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array(["x" * 1000])),
            )
        ),
    ],
)
def test_too_large_groups_are_refused(tmp_path, form, column):
    path, table = (
        str(tmp_path / "x"),
        pa.table({"small": pa.array(np.arange(len(column)) % 100, pa.int8()), "x": column}),
    )
    if form.partition(" ")[2]:
        compression, form = form.split()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(path, "wb") as f, getattr(pa.ipc, f"new_{form}")(f, table.schema, options=options) as writer:
            writer.write_table(table)
    elif form == "arrow":
        with pa.OSFile(path, "wb") as f, pa.ipc.new_file(f, table.schema) as writer:
            writer.write_table(table)
    elif form == "delta":
        pq.write_table(
            table,
            path,
            use_dictionary=False,
            column_encoding={"x": "DELTA_BYTE_ARRAY", "small": "PLAIN"},
            compression="none",
        )
    else:
        pq.write_table(table, path, compression=form)
    storage = Storage(max_record_bytes=90_000)
    assert read(2, ["small"], path, storage=storage)[0][1] == 1
    with pytest.raises(
        SampleError,
        match=r"row 0: .*its group of rows is too large: .*Storage\(max_record_bytes=90000\) allows no more",
    ):
        read(2, ["x"], path, storage=storage)


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_batches(tmp_path, form, compression):
    """Columns of any types stand before and after those that are read; two batches, with dictionaries."""
    n = 40
    table = pa.table(
        {
            "nothing": pa.nulls(n),
            "nested": pa.array([{"a": [[i], []], "b": {"c": "x" * i}} for i in range(n)]),
            "pairs": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "fixed": pa.array([[i, i + 1] for i in range(n)], pa.list_(pa.int16(), 2)),
            "views": pa.array(["v" * i for i in range(n)], pa.string_view()),
            "kind": pa.array(["a", "b" * 50] * (n // 2)).dictionary_encode(),
            "flags": pa.array([i % 3 == 0 for i in range(n)]),
            "x": pa.array([b"y" * i for i in range(n)]),
        }
    )
    path = tmp_path / "x.arrow"
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as f, getattr(pa.ipc, f"new_{form}")(f, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=n // 2)
    x, fixed, kind, views = read(
        n, ["x", "fixed", "kind", "views"], str(path), storage=Storage(max_record_bytes=100_000)
    )
    assert [v.tobytes() for v in x] == [b"y" * i for i in range(n)]
    assert [v.tolist() for v in fixed] == [[i, i + 1] for i in range(n)]
    assert [v.tobytes() for v in kind] == [b"a", b"b" * 50] * (n // 2)
    assert [v.tobytes() for v in views] == [b"v" * i for i in range(n)]


@pytest.mark.parametrize("form", ["file", "stream"])
def test_too_large_batches_are_not_decompressed(tmp_path, form):
    path, x = tmp_path / "x.arrow", np.zeros(1 << 22)
    table = pa.table({"small": pa.array(np.arange(len(x)) % 100, pa.int8()), "x": x})
    with pa.OSFile(str(path), "wb") as f:
        with getattr(pa.ipc, f"new_{form}")(
            f, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_table(table)
    assert path.stat().st_size < 1 << 20
    usual, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        with pytest.raises(SampleError, match=r"row 0: .*its group of rows is too large: it would take 33554432 bytes"):
            read(1, ["x"], str(path), storage=Storage(max_record_bytes=1 << 24))
        assert watched.max_memory() < 1 << 22
        assert read(2, ["small"], str(path), storage=Storage(max_record_bytes=1 << 24))[0][1] == 1
        assert watched.max_memory() < 1 << 24
    finally:
        pa.set_memory_pool(usual)


def test_damaged_compressed_batches(tmp_path):
    """Each is refused or gives other rows; none is more than its limit, and no error is one of the parser's own."""
    rng, path = np.random.default_rng(1), tmp_path / "x.arrow"
    table = pa.table({"x": pa.array([b"y" * i for i in range(40)])})
    with (
        pa.OSFile(str(path), "wb") as f,
        pa.ipc.new_file(f, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        writer.write_table(table)
    whole = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with contextlib.suppress(RuntimeError):  # SampleError, too
            read(4, ["x"], str(path), storage=Storage(max_record_bytes=100_000))


def test_wrong_rows_of_compressed_batches(tmp_path):
    path, number = tmp_path / "x.arrow", 12345
    table = pa.table({"x": np.arange(number, dtype=np.int32)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    whole = sink.getvalue().to_pybytes()
    # The number of rows, of the batch and of its column; then of both.
    batch, column = struct.pack("<q", number), struct.pack("<qq", number, 0)
    for wrong in (10**14, 10**8, -5):  # 10^8 took 0.8 GB
        for damaged in (
            whole.replace(column, struct.pack("<qq", wrong, 0), 1),
            whole.replace(batch, struct.pack("<q", wrong), 1),
            whole.replace(batch, struct.pack("<q", wrong)),
        ):
            path.write_bytes(damaged)
            with pytest.raises(RuntimeError, match=rf"x.arrow: the message .* it can't have ({wrong}|{number}) rows"):
                read(1, ["x"], str(path))
    # A size that is wrong is an error of its batch, also where sums of sizes exceed 64 bits.
    path.write_bytes(whole.replace(struct.pack("<q", 4 * number), struct.pack("<q", 2**63 - 1), 1))
    with (
        pytest.warns(UserWarning, match="1 of 1 row groups take more than the 256 MB"),
        pytest.raises(SampleError, match=r"x.arrow, row \d+: its group of rows is too large"),
    ):
        read(1, ["x"], str(path), shuffle="global")


def test_wrong_rows_of_groups(tmp_path):
    def varint(x):  # of Thrift, in which 2x and 2x - 1 stand for x and -x
        x = 2 * x if x >= 0 else -2 * x - 1
        digits = [x >> shift & 127 for shift in range(0, max(x.bit_length(), 1), 7)]
        return bytes([*(d | 128 for d in digits[:-1]), digits[-1]])

    path, number = tmp_path / "x.parquet", 12345
    pq.write_table(pa.table({"x": np.arange(number, dtype=np.int32)}), path)
    whole = path.read_bytes()
    begin = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    # The footer's numbers of rows: of the file, of values of its column, (of a histogram,) and of rows of its group.
    parts = whole[begin:-8].split(varint(number))
    for place, wrong, text in (
        (0, -5, "x.parquet: its metadata are damaged: groups of 12345 rows, -5 in all"),
        (-1, 10**14, "x.parquet: its metadata are damaged"),
        (-1, -5, "x.parquet: its metadata are damaged"),
        (1, -5, "x.parquet, row 0: its group has 0 rows, its metadata say 12345"),
    ):
        numbers = [number] * (len(parts) - 1)
        numbers[place] = wrong
        footer = parts[0] + b"".join(varint(n) + part for n, part in zip(numbers, parts[1:]))
        path.write_bytes(whole[:begin] + footer + struct.pack("<I", len(footer)) + b"PAR1")
        with pytest.raises(RuntimeError, match=text):
            read(1, ["x"], str(path))


def test_large_groups_are_read_in_parts(tmp_path):
    """The rows are the same at once and in parts."""
    path, column = str(tmp_path / "x"), [bytes([i % 7]) * (i * 13 % 900) for i in range(100)]
    pq.write_table(
        pa.table({"x": column, "y": [str(i) for i in range(100)], "z": pa.array([[i, i] for i in range(100)])}), path
    )
    size = sum(map(len, column))
    for storage in (Storage(), Storage(max_record_bytes=2 * size)):
        x, y, z = read(100, ["x", "y", "z"], path, storage=storage)
        assert [v.tobytes() for v in x] == column
        assert [v.tobytes() for v in y] == [str(i).encode() for i in range(100)]
        assert [v.tolist() for v in z] == [[i, i] for i in range(100)]


@pytest.mark.parametrize("columns", [["x"], ("x",), ["x", "y"], "x"])
def test_names_in_a_list_give_a_list(tmp_path, columns):
    pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), tmp_path / "t.parquet")

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        nodes = fn.readers.parquet(path=str(tmp_path / "t.parquet"), columns=columns)
        if columns == "x":
            return nodes
        assert len(nodes) == len(columns)
        return tuple(nodes)

    with contextlib.closing(pipeline()) as pipe:
        for out, expected in zip(pipe.run(), ([1, 2], [3, 4])):
            np.testing.assert_array_equal(np.ravel(out.as_array()), expected)


ROWS = 40  # of each group
GROUPS = 30


def _numbered(folder, form="parquet", files=1):
    """Files of rows that say their number, in groups of 40 rows of 4 KB."""
    for k in range(files):
        rows = range(k * ROWS * GROUPS, (k + 1) * ROWS * GROUPS)
        table = pa.table({"x": [b"%08d" % i + b"." * 4000 for i in rows], "n": pa.array(rows, pa.int64())})
        if form == "parquet":
            pq.write_table(table, folder / f"{k}", row_group_size=ROWS)
        else:
            options = pa.ipc.IpcWriteOptions(compression=form)
            with (
                pa.OSFile(str(folder / f"{k}"), "wb") as f,
                pa.ipc.new_file(f, table.schema, options=options) as writer,
            ):
                writer.write_table(table, ROWS)
    return [str(folder / f"{k}") for k in range(files)]


def _pipe(path, B=16, checkpoint=None, **order):
    @pipeline_def(batch_size=B, num_threads=2, seed=3, enable_checkpointing=True, checkpoint=checkpoint)
    def pipeline():
        x, n = fn.readers.parquet(path=path, columns=["x", "n"], name="r", **order)
        return x, n

    return pipeline()


def _numbers(pipe, batches):
    """The numbers of the rows of some batches, which both columns say."""
    numbers = []
    for _ in range(batches):
        x, n = pipe.run()
        assert [int(np.asarray(row)[:8].tobytes()) for row in x] == np.asarray(n.as_array()).tolist()
        numbers += np.asarray(n.as_array()).tolist()
    return numbers


@pytest.fixture
def small_cache(monkeypatch):
    monkeypatch.setattr(_parquet, "_CACHE_BYTES", 12 * ROWS * 4020)  # of which half is the buffer


@pytest.mark.parametrize(
    "order", [{"shuffle": "global"}, {"random_shuffle": True}, {"random_shuffle": True, "initial_fill": 5}]
)
@pytest.mark.parametrize("form", ["parquet", "lz4"])
def test_reads_of_shuffled_groups(tmp_path, small_cache, groups_read, form, order):
    with contextlib.closing(_pipe(_numbered(tmp_path, form, 2), **order)) as pipe:
        for _ in range(2):
            groups_read.clear()
            numbers = _numbers(pipe, 2 * ROWS * GROUPS // 16)
            assert sorted(numbers) == list(range(2 * ROWS * GROUPS))
            assert len(groups_read) <= 1.5 * 2 * GROUPS  # those that are read ahead count, too
    batches = np.reshape(numbers, (-1, 16)) // ROWS
    assert np.mean([len({*groups}) for groups in batches]) > 3


@pytest.mark.parametrize("order", [{"shuffle": "global"}, {"random_shuffle": True, "initial_fill": ROWS * GROUPS}])
@pytest.mark.parametrize("kind", ["bytes", "images", "lists", "strings"])
def test_mapped_rows_are_shuffled_one_by_one(tmp_path, small_cache, kind, order):
    """But for strings, of which all of a group are validated."""
    values = [b"." * 4000] * (ROWS * GROUPS)
    columns = {
        "bytes": lambda: pa.array(values, pa.binary()),
        "images": lambda: pa.array([{"bytes": x, "path": "a.png"} for x in values]),
        "lists": lambda: pa.array([[0.0] * 1000] * len(values), pa.list_(pa.float32())),
        "strings": lambda: pa.array([x.decode() for x in values], pa.string()),
    }
    table = pa.table({"x": columns[kind](), "n": pa.array(range(len(values)), pa.int64())})
    with pa.OSFile(str(tmp_path / "x"), "wb") as f, pa.ipc.new_stream(f, table.schema) as writer:
        writer.write_table(table, ROWS)

    @pipeline_def(batch_size=60, num_threads=2, seed=3)
    def pipeline():
        return tuple(fn.readers.parquet(path=tmp_path / "x", columns=["x", "n"], **order))

    with contextlib.closing(pipeline()) as pipe:
        numbers = [np.asarray(pipe.run()[1].as_array()).tolist() for _ in range(ROWS * GROUPS // 60)]
    assert sorted(np.ravel(numbers)) == list(range(ROWS * GROUPS))
    groups = np.mean([len({n // ROWS for n in batch}) for batch in numbers])  # in a batch
    assert groups < 12 if kind == "strings" else groups > 20


def test_shards_of_shuffled_groups(tmp_path, small_cache, groups_read):
    path, numbers = _numbered(tmp_path), []
    for shard in range(3):
        groups_read.clear()
        with contextlib.closing(_pipe(path, 10, shuffle="global", num_shards=3, shard_id=shard)) as pipe:
            numbers += _numbers(pipe, ROWS * GROUPS // 30)
        assert len(groups_read) < GROUPS  # a third, and what is read ahead
    assert sorted(numbers) == list(range(ROWS * GROUPS))


@pytest.mark.parametrize("order", [{"shuffle": "global"}, {"random_shuffle": True}])
def test_checkpoints_of_shuffled_groups(tmp_path, small_cache, order, monkeypatch):
    path = _numbered(tmp_path)
    with contextlib.closing(_pipe(path, **order)) as pipe:
        first_numbers, state, last_numbers = _numbers(pipe, 30), pipe.checkpoint(), _numbers(pipe, 45)
    assert sorted(first_numbers + last_numbers) == list(range(ROWS * GROUPS))
    with contextlib.closing(_pipe(path, 24, checkpoint=state, **order)) as pipe:
        assert _numbers(pipe, 30) == last_numbers
    monkeypatch.setattr(_parquet, "_CACHE_BYTES", 512 << 20)  # the whole list fits, as in versions without groups
    with (
        pytest.raises(RuntimeError, match="groups is None here and '30 in a buffer of"),
        contextlib.closing(_pipe(path, checkpoint=state, **order)) as pipe,
    ):
        pipe.run()


def test_mixed_groups(tmp_path, small_cache, groups_read):
    paths = _numbered(tmp_path, files=2)
    with contextlib.closing(_pipe(paths, 40, shuffle="global", weights=(3, 1))) as pipe:
        numbers = np.array(_numbers(pipe, 4 * GROUPS))
    rows = ROWS * GROUPS
    assert np.bincount(numbers).tolist() == [3] * rows + [1] * rows
    share = (numbers.reshape(-1, 400) < rows).mean(axis=1)
    assert share.min() > 0.65
    assert share.max() < 0.85
    assert len(groups_read) <= 1.5 * 4 * GROUPS


def _read(path, batches, batch_size):
    """Reads rows in random order. Batches that are small beside a group read few groups of the next epoch ahead."""

    @pipeline_def(batch_size=batch_size, num_threads=1)
    def pipeline():
        return fn.readers.parquet(path=path, columns="x", shuffle="global")

    with contextlib.closing(pipeline()) as pipe:
        for _ in range(batches):
            pipe.run()


def test_groups_of_lists(tmp_path, small_cache, groups_read):
    """Lists of bytes are read one by one, from the groups that their batch holds."""
    lists = [[b"%08d" % i + b"." * 40_000] for i in range(ROWS * GROUPS // 10)]
    pq.write_table(pa.table({"x": lists}), tmp_path / "x", row_group_size=ROWS // 10, use_dictionary=False)
    _read(tmp_path / "x", ROWS * GROUPS // 20, batch_size=2)
    assert len(groups_read) <= 1.5 * GROUPS


def test_groups_of_repeated_words(tmp_path, small_cache, groups_read):
    """The file has each word once in a group, so it is much smaller than its rows in memory."""
    words = [f"{i % 4:08}" + "." * 4000 for i in range(ROWS * GROUPS)]
    pq.write_table(pa.table({"x": words}), tmp_path / "x", row_group_size=ROWS)
    _read(tmp_path / "x", ROWS * GROUPS // 16, batch_size=16)
    assert len(groups_read) <= 1.5 * GROUPS


@pytest.mark.parametrize("kind", ["bytes", "images", "lists"])
def test_groups_of_repeated_images(tmp_path, small_cache, groups_read, kind):
    """As of questions about images: a group stores each image once, and it is large."""
    values = [b"%08d" % (i // 20) + b"." * 40_000 for i in range(ROWS * GROUPS // 10)]
    columns = {
        "bytes": lambda: pa.array(values),
        "images": lambda: pa.array([{"bytes": x, "path": None} for x in values]),
        "lists": lambda: pa.array([[x] for x in values]),
    }
    pq.write_table(pa.table({"x": columns[kind]()}), tmp_path / "x", row_group_size=ROWS // 10)
    _read(tmp_path / "x", ROWS * GROUPS // 20, batch_size=2)
    assert len(groups_read) <= 1.5 * GROUPS


@pytest.mark.parametrize("order", [{"shuffle": "global"}, {"random_shuffle": True}])
def test_warning_of_large_groups(tmp_path, monkeypatch, groups_read, order):
    monkeypatch.setattr(_parquet, "_CACHE_BYTES", ROWS * 4020)
    path = _numbered(tmp_path)
    with contextlib.closing(_pipe(path)) as pipe:  # in order there is no warning
        assert _numbers(pipe, 5) == list(range(80))
    groups_read.clear()
    with pytest.warns(UserWarning, match=rf"30 of 30 row groups .*{path[0]}.*jaxdali\.pack"):
        pipe = _pipe(path, **order)
        pipe.build()
    with contextlib.closing(pipe):
        assert sorted(_numbers(pipe, 75)) == list(range(ROWS * GROUPS))
    assert len(groups_read) <= 1.5 * GROUPS
