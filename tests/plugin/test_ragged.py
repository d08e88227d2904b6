"""`DALIRaggedIterator`: lists of tensors and sparse tensors, against NumPy and the epochs of the dense iterators."""

import contextlib
import json

import numpy as np
import pytest
from epochs import EPOCHS_IN_TORCH

from jaxdali import fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy

torch = pytest.importorskip("torch")

from jaxdali.plugin.pytorch import DALIRaggedIterator, _iterator  # noqa: E402 - it needs torch

DENSE, LIST, COO = DALIRaggedIterator.DENSE_TAG, DALIRaggedIterator.SPARSE_LIST_TAG, DALIRaggedIterator.SPARSE_COO_TAG
LINE = r"\(created at .*test_ragged\.py:\d+\)"


@pipeline_def(batch_size=2, num_threads=1)
def in_all_forms(files, num_shards=1, shard_id=0, pad=False):
    data, _ = fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id, pad_last_batch=pad)
    return data, data, fn.cat(data, data)  # dense, list, sparse


def text_of_forms(epoch):
    """The samples of an epoch as text, from batches whose outputs are equal in all forms."""

    def values(d):
        assert all(x.shape == (1,) for x in d["list"])
        assert [x.item() for x in d["list"]] == d["dense"][:, 0].tolist()
        assert d["sparse"].to_dense().tolist() == [[x, x] for x in d["dense"][:, 0].tolist()]
        return "".join(str(x.item()) for x in d["list"])

    return " ".join("|".join(values(d) for d in batch) for batch in epoch)


@pytest.mark.parametrize(
    ("shards", "policy", "pad", "sized_by", "want"), [row for row in EPOCHS_IN_TORCH if row[:2] != (1, "DROP")]
)
def test_ragged_batches_end_as_dense_ones(files, shards, policy, pad, sized_by, want):
    pipes = [in_all_forms(files[:7], shards, i, pad) for i in range(shards)]
    counted_by = {"reader_name": "reader"} if sized_by == "reader" else {"size": 7, "last_batch_padded": pad}
    with pytest.warns(UserWarning, match="reader_name") if sized_by == "size" else contextlib.nullcontext():
        it = DALIRaggedIterator(
            pipes,
            ["dense", "list", "sparse"],
            output_types=[DENSE, LIST, COO],
            last_batch_policy=LastBatchPolicy[policy],
            **counted_by,
        )
    texts = []
    with it:
        for _ in range(3):
            texts.append(text_of_forms(it))
            it.reset()
    assert texts == want


def sizes(i):
    """Heights and widths of the images of batch `i`."""
    return [(3 + i, 5), (4, 2 + 2 * i), (1 + i % 2, 70)]


def ragged_images(i):
    return [np.arange(h * w * 3, dtype=np.uint8).reshape(h, w, 3) + np.uint8(i) for h, w in sizes(i)]


@pipeline_def(batch_size=3, num_threads=1)
def images():
    """Outputs of the host, of a program (with a status and without), of a function, and of static shape."""
    x = fn.external_source(source=ragged_images, layout="HWC")
    doubled = x.gpu() * np.uint8(2)
    flipped = fn.flip(x)
    called = fn.python_function(x, function=lambda x: x[::-1])
    return x, doubled, flipped, called, fn.resize(x, size=(2, 2)), x


NAMES = ["host", "doubled", "flipped", "called", "resized", "again"]


def test_lists_may_be_kept_and_changed():
    batches = []
    with DALIRaggedIterator(images(), NAMES, output_types=[LIST] * 6) as it:
        for _ in range(8):
            (batch,) = next(it)
            assert [t.shape for t in batch["resized"]] == [(2, 2, 3)] * 3
            for x in batch.values():
                assert isinstance(x, list)
                for t in x:
                    t.add_(3)  # changes the batch that is the last one at this time
            batches.append(batch)
    del it
    for i, batch in enumerate(batches):
        for k, x in enumerate(ragged_images(i)):
            for name, want in (
                ("host", x),
                ("doubled", x * 2),
                ("flipped", x[:, ::-1]),
                ("called", x[::-1]),
                ("again", x),
            ):
                np.testing.assert_array_equal(batch[name][k].numpy(), want + np.uint8(3), err_msg=f"{name} {i} {k}")


def test_lists_share_the_memory_of_the_array(monkeypatch):
    arrays = []
    convert = _iterator._TensorMaker.__call__
    monkeypatch.setattr(
        _iterator._TensorMaker,
        "__call__",
        lambda self, plan, outputs: arrays.append(outputs) or convert(self, plan, outputs),
    )
    with DALIRaggedIterator(images(), NAMES, output_types=[LIST] * 6) as it:
        (batch,) = next(it)
    for name, output in zip(NAMES[:3], arrays[0]):
        starts = [output.data.unsafe_buffer_pointer() + start for start in output.starts]
        assert [t.data_ptr() for t in batch[name]] == starts


VECTORS = [[[1, 2], [], [3, 4, 5]], [[7], [8, 9], []], [[], [], []]]


@pytest.mark.parametrize("name", ["bool", "uint16", "int64", "float16", "float64"])
def test_sparse_tensors(name):
    """Indices and values of all elements, sample by sample, as in DALI's `torch.sparse_coo_tensor`."""

    def batch(i):
        return [np.array(x, name) for x in VECTORS[i % 3]]

    @pipeline_def(batch_size=3, num_threads=1)
    def define():
        x = fn.external_source(source=batch)
        return x, x.gpu()

    with DALIRaggedIterator(define(), ["host", "program"], output_types=[COO, COO]) as it:
        for i in range(4):
            (batches,) = next(it)
            rows = VECTORS[i % 3]
            for t in batches.values():
                assert t.is_coalesced()
                assert t.shape == (3, max(map(len, rows)))
                assert t.dtype == getattr(torch, name)
                assert t.indices().T.tolist() == [[k, j] for k, row in enumerate(rows) for j in range(len(row))]
                assert t.values().tolist() == np.array([x for row in rows for x in row], name).tolist()


def test_width_of_cut_sparse_tensors(tmp_path):
    """The last batch of three files ends with the first file, which is the longest and belongs to the next epoch."""
    paths = [tmp_path / f"{i}.bin" for i in range(3)]
    for path, n in zip(paths, (5, 1, 2)):
        path.write_bytes(bytes(range(n)))

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        return fn.readers.file(files=paths, name="files")[0]

    with DALIRaggedIterator(pipeline(), ["x"], reader_name="files", output_types=[COO]) as it:
        assert [x["x"].to_dense().tolist() for (x,) in it] == [[[0, 1, 2, 3, 4], [0] * 5], [[0, 1]]]


def test_ragged_batches_without_unreadable_files_are_shorter(tmp_path):
    paths = [tmp_path / f"{i}.bin" for i in range(6)]
    for i, path in enumerate(paths):
        if i not in (1, 4, 5):
            path.write_bytes(bytes([i] * (i + 1)))

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        x = fn.readers.file(files=paths, name="files", on_error="skip")[0]
        return x, x

    it = DALIRaggedIterator(pipeline(), ["list", "sparse"], reader_name="files", output_types=[LIST, COO])
    batches = [([x.tolist() for x in batch["list"]], batch["sparse"].to_dense().tolist()) for (batch,) in it]
    assert batches == [([[0]], [[0]]), ([[2] * 3, [3] * 4], [[2, 2, 2, 0], [3] * 4]), ([], [])]


def test_lists_of_a_branch():
    pytest.importorskip("malt")  # it rewrites the definition

    @pipeline_def(batch_size=4, num_threads=1, enable_conditionals=True)
    def define():
        x = fn.external_source(source=lambda info: np.arange(info.idx_in_epoch % 3 + 1), batch=False)
        if fn.shapes(x)[0] > 2:
            y = x[:2]
        else:
            y = x
        return y.gpu() * 10

    with DALIRaggedIterator(define(), ["x"], output_types=[LIST]) as it:
        assert [t.tolist() for t in next(it)[0]["x"]] == [[0], [0, 10], [0, 10], [0]]


def test_default_tags_are_dense(files):
    with DALIRaggedIterator(in_all_forms(files[:3]), ["a", "b", "c"], reader_name="reader") as it:
        assert [[x.tolist() for x in batch.values()] for (batch,) in it] == [
            [[[1], [2]]] * 2 + [[[1, 1], [2, 2]]],
            [[[3]]] * 2 + [[[3, 3]]],
        ]
    with pytest.raises(RuntimeError, match=rf"external_source {LINE}: the samples of output 0 .* differ in shape"):
        DALIRaggedIterator(images(), NAMES)


def test_ragged_iterators_resume_from_states(files):
    def make():
        pipe = in_all_forms(files[:7])
        return DALIRaggedIterator(
            pipe, ["dense", "list", "sparse"], reader_name="reader", output_types=[DENSE, LIST, COO], auto_reset=True
        )

    with make() as it, make() as resumed:
        assert repr(it).splitlines()[1:] == [
            f"  {name}: uint8[2, ?], on the cpu, of {operator}, {tag}"
            for name, operator, tag in (
                ("dense", "readers.file", DENSE),
                ("list", "readers.file", LIST),
                ("sparse", "cat", COO),
            )
        ]
        next(it)
        resumed.set_state(json.loads(json.dumps(it.get_state())))
        for _ in range(3):
            assert text_of_forms(it) == text_of_forms(resumed)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"output_types": ["dense", "sparse"]},
            ValueError,
            r"SPARSE_LIST_TAG \('sparse_list'\).* got \['dense', 'sparse'\]",
        ),
        ({"output_types": LIST}, ValueError, "must be a list of DENSE_TAG"),
        ({"output_types": 3}, ValueError, "must be a list of DENSE_TAG.* got 3"),
        ({"output_types": iter([LIST] * 3)}, ValueError, "must be a list of DENSE_TAG.* got <list_iterator"),
        ({"output_types": [LIST]}, ValueError, "a tag for each of the 3 names in output_map, got 1"),
        ({"output_map": ["x"], "output_types": [LIST]}, IndexError, "1 names, .*has 3 outputs"),
        ({"output_type": [LIST] * 3}, TypeError, "DALIRaggedIterator: .*'output_type'; did you mean 'output_types'"),
        ({"reader_name": "nobody"}, RuntimeError, "no reader named 'nobody'"),
    ],
)
def test_wrong_arguments_of_ragged_iterators(files, options, error, message):
    arguments = {"pipelines": in_all_forms(files), "output_map": ["x", "y", "z"], "reader_name": "reader", **options}
    with pytest.raises(error, match=message):
        DALIRaggedIterator(**arguments)


def test_sparse_tensors_are_of_vectors():
    with pytest.raises(
        RuntimeError, match=rf"flip {LINE}: output 'flipped' has SPARSE_COO_TAG.* of 3 dimensions; use SPARSE_LIST_TAG"
    ):
        DALIRaggedIterator(images(), NAMES, output_types=[LIST, LIST, COO, LIST, LIST, LIST])
