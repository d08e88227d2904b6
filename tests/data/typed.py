"""Definitions with the types that checkers are expected to infer; read by tests/test_typing.py, never run."""

from typing import assert_type

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator, DALIGenericPeekableIterator, data_iterator, peekable_data_iterator


@pipeline_def
def bare(path: str, size: int = 224):
    return fn.resize(fn.readers.numpy(file_root=path), size=size)


@pipeline_def(batch_size=8, num_threads=2)
def called(path: str):
    return fn.readers.numpy(file_root=path)


@data_iterator(output_map=["x"], reader_name="reader")
def iterator(path: str, num_shards: int = 1, shard_id: int = 0):
    return fn.readers.numpy(file_root=path, name="reader")


@peekable_data_iterator(output_map=["x"])
def peekable(path: str):
    return fn.readers.numpy(file_root=path)


assert_type(bare("a", size=3), Pipeline)
assert_type(bare("a", batch_size=3, num_threads=1), Pipeline)
assert_type(called("a"), Pipeline)
assert_type(called(path="a", seed=3), Pipeline)
assert_type(iterator("a", batch_size=4, checkpoints=[b""]), DALIGenericIterator)
assert_type(peekable("a"), DALIGenericPeekableIterator)
assert_type(data_iterator(lambda: None, ["x"])(batch_size=1), DALIGenericIterator)
assert_type(data_iterator(pipeline_fn=lambda: None, output_map=["x"], ragged={"x": (4, 5)})(), DALIGenericIterator)
iterator("a", batch_size=4).statistics()
called("a").run()
fn.readers.file(file_root="a", num_shards=2, shuffle="global", storage=None)
fn.readers.numpy(file_root="a", num_shards=2, device="gpu")

fn.readers.file(file_root="a", shuffle="all")  # wrong
fn.readers.file(file_root="a", num_shard=2)  # wrong
data_iterator(output_map=["x"], reader="reader")  # wrong
peekable_data_iterator(lambda: None, ["x"], size="all")  # wrong
iterator("a").statisticz()  # wrong
called("a").runn()  # wrong
