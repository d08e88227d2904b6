"""Readers of a bucket: a real S3 server on this machine."""

import hashlib

import numpy as np
import pytest

import jaxdali
from jaxdali import SampleError, fn, pipeline_def

pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")
# Warnings of the server and its client.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

FILES = {f"train/{c}/{i}.bin": hashlib.sha256(f"{c}{i}".encode()).digest() * (i + 1) for c in "ab" for i in range(6)}


@pytest.fixture(scope="module")
def storage():
    import s3fs

    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    options = {
        "key": "key",
        "secret": "secret",
        "endpoint_url": f"http://{host}:{port}",
        "client_kwargs": {"region_name": "eu-west-1"},
    }
    fs = s3fs.S3FileSystem(**options)
    fs.mkdir("bucket")
    for name, data in FILES.items():
        fs.pipe_file(f"bucket/{name}", data)
    yield jaxdali.Storage(options=options, retries=1)
    running.stop()


def reader(storage, batch_size=6, **kwargs):
    @pipeline_def(batch_size=batch_size, num_threads=2, enable_statistics=True)
    def pipeline():
        return fn.readers.file(
            **{"file_root": "s3://bucket/train", "file_filters": "*.bin"} | kwargs, storage=storage, name="reader"
        )

    return pipeline()


def test_a_bucket_is_read(storage):
    pipe = reader(storage)
    samples = []
    for _ in range(2):
        data, labels = pipe.run()
        samples += [(x.source_info(), np.asarray(x).tobytes(), int(np.asarray(y)[0])) for x, y in zip(data, labels)]
    pipe.close()
    assert samples == [(n.removeprefix("train/"), data, int("/b/" in n)) for n, data in sorted(FILES.items())]
    rows = {m.stage: m for m in pipe.statistics() if m.step == "reader"}
    assert rows["fetch"].calls >= 12
    assert rows["retry"].calls == 0


def test_a_missing_object_is_named(storage):
    files = ["s3://bucket/train/a/0.bin", "s3://bucket/train/a/missing.bin"]
    pipe = reader(storage, batch_size=2, file_root=None, files=files)
    with pytest.raises(SampleError, match=r"s3://bucket/train/a/missing\.bin: No such file"):
        pipe.run()
    pipe.close()


def test_a_missing_bucket(storage):
    with pytest.raises(RuntimeError, match=r"can't list file_root s3://nobody/train: .*No such file"):
        reader(storage, file_root="s3://nobody/train").build()
