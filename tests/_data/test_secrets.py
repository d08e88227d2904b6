"""No text that leaves the library has a credential."""

import http.server
import logging
import threading
import traceback
from typing import ClassVar

import numpy as np
import pytest

import jaxdali
from jaxdali import Pipeline, fn, pipeline_def
from jaxdali._core.redaction import redacted
from jaxdali._data.storage import Store

SECRETS = ["TOKENxyz123", "hunter2pass", "SIGNATUREabc", "APIKEYqwe99", "s3cr3tvalue"]
QUERY = "X-Amz-Signature=SIGNATUREabc&id=17"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:hunter2pass@host:81/a/b.jpg?id=17", "https://***@host:81/a/b.jpg?id=17"),
        ("can't open https://us%40er:hunter2@pass@host/a: No such file", "can't open https://***@host/a: No such file"),
        (f"https://host/a?{QUERY}", "https://host/a?X-Amz-Signature=***&id=17"),
        (
            "https://h/a?X-Amz-Credential=SIGNATUREabc%2F2026&X-Amz-Date=2026T",
            "https://h/a?X-Amz-Credential=***&X-Amz-Date=***",
        ),
        ("az://c/b?sv=2020&sig=SIGNATUREabc%3D: 503", "az://c/b?sv=2020&sig=***: 503"),
        ("gs://b/o?Signature=s3cr3tvalue;token=1234", "gs://b/o?Signature=***;token=***"),
        ("simplecache::https://u:hunter2pass@h/x", "simplecache::https://***@h/x"),
        ("{'Authorization': 'Bearer TOKENxyz123', 'Accept': '*/*'}", "{'Authorization': ***, 'Accept': '*/*'}"),
        ("headers: Authorization: Basic TOKENxyz123=", "headers: Authorization: ***"),
        ('<X-Api-Key: "APIKEYqwe99">, Cookie=s3cr3tvalue', "<X-Api-Key: ***>, Cookie=***"),
        ("password=hunter2pass, aws_secret_access_key: 's3cr3tvalue'", "password=***, aws_secret_access_key: ***"),
        ("a.jpg: 3 bytes where 5 were expected", "a.jpg: 3 bytes where 5 were expected"),
        ("/data/key=5/token.jpg: No such file", "/data/key=5/token.jpg: No such file"),
        ("s3://bucket/a?b.jpg", "s3://bucket/a?b.jpg"),
        ("s3://bucket/user@home/x.jpg", "s3://bucket/user@home/x.jpg"),
    ],
)
def test_credentials_are_removed(text, shown):
    assert redacted(text) == shown
    assert not any(s in redacted(text) for s in SECRETS)
    assert redacted(redacted(text)) == redacted(text)


@pytest.fixture
def server(monkeypatch):
    """A server whose answers are errors: the path begins with the status, and the error's text has the path."""

    monkeypatch.setattr("jaxdali._data.request_threads._IDLE", 0.01)  # threads of builds that fail end by themselves

    class Handler(http.server.BaseHTTPRequestHandler):
        requests: ClassVar[list] = []

        def do_GET(self):
            self.requests.append((self.path, dict(self.headers)))
            status = int(self.path.split("/")[1][:3])
            self.send_response(status, f"no {self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever)
    thread.start()
    yield http_server
    http_server.shutdown()
    http_server.server_close()
    thread.join()


WAYS = {
    "url": {},  # aiohttp takes no password there together with a header
    "headers": {
        "headers": {"Authorization": "Bearer TOKENxyz123", "X-Api-Key": "APIKEYqwe99", "X-Other": "s3cr3tvalue"}
    },
    "client_kwargs": {"client_kwargs": {"headers": {"Authorization": "Bearer TOKENxyz123", "X-Other": "s3cr3tvalue"}}},
}


def texts_of(e):
    return [*traceback.format_exception(e), str(e), repr(e), repr(vars(e))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [401, 404, 503])
@pytest.mark.filterwarnings("ignore")
def test_failed_requests_show_no_credentials(server, caplog, recwarn, way, status):
    pytest.importorskip("aiohttp")
    caplog.set_level(logging.DEBUG, "jaxdali")
    storage = jaxdali.Storage(retries=0, options=WAYS[way])
    user = "" if WAYS[way] else "user:hunter2pass@"
    url = f"http://{user}127.0.0.1:{server.server_port}/{status}/a.jpg?{QUERY}"
    texts = [repr(storage), str(storage)]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, enable_statistics=True, enable_checkpointing=True)
    def files(on_error="raise"):
        return fn.readers.file(files=[url, url], storage=storage, name="reader", on_error=on_error)[0]

    pipe = files()
    with pytest.raises(jaxdali.SampleError) as e:
        pipe.run()
    assert f"/{status}/a.jpg" in str(e.value)  # what was read is still told
    assert f"/{status}/a.jpg" in server.RequestHandlerClass.requests[-1][0]
    texts += [*texts_of(e.value), repr(pipe), str(pipe.statistics()), str(pipe.checkpoint()), repr(pipe.bad_samples())]
    with pytest.raises(ValueError, match="credentials") as refused:
        pipe.serialize()
    texts += texts_of(refused.value)
    pipe.close()

    pipe = files(on_error="skip")
    pipe.run()
    assert pipe.bad_samples()
    texts += [repr(pipe.bad_samples()), *(b.file + b.reason for b in pipe.bad_samples())]
    pipe.close()

    for make in (
        lambda: fn.readers.file(file_root=url, storage=storage)[0],
        lambda: fn.readers.file(file_list=url, storage=storage)[0],
        lambda: fn.readers.numpy(files=[url], storage=storage),
        lambda: fn.readers.zip(path=[url], storage=storage)[0],
        lambda: fn.readers.tfrecord(
            path=url, features={"a": jaxdali.tfrecord.VarLenFeature(jaxdali.tfrecord.int64, 0)}, storage=storage
        )["a"],
        lambda: fn.readers.coco(file_root=url, annotations_file=url, storage=storage)[0],
        lambda: fn.readers.file(files=[url], file_filters=[], storage=storage)[0],
        lambda: fn.readers.webdataset(paths=[url], ext=["jpg"], storage=storage),
    ):
        with pytest.raises((RuntimeError, ValueError)) as e:
            pipeline_def(lambda make=make: make(), batch_size=1, num_threads=1, device_id=None)().build()
        texts += texts_of(e.value)
    texts += [r.getMessage() for r in caplog.records] + [str(w.message) for w in recwarn.list]
    assert [(s, t) for t in texts for s in SECRETS if s in t] == []


def test_options_are_withheld_from_data_hosts(server, tmp_path):
    pytest.importorskip("aiohttp")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    url = f"http://127.0.0.1:{server.server_port}/404/x.jpg"
    requests = server.RequestHandlerClass.requests
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array([{"bytes": None, "path": url}], kind)}), tmp_path / "t.parquet")
    (tmp_path / "list").write_text(f"{url} 0\n")
    storage = jaxdali.Storage(retries=0, options=WAYS["headers"], allow_outside=True)

    def tokens(make):
        del requests[:]
        pipe = pipeline_def(lambda: make(), batch_size=1, num_threads=1, device_id=None)()
        with pytest.raises(jaxdali.SampleError):
            pipe.run()
        pipe.close()
        assert requests
        return {headers.get("Authorization") for _, headers in requests}

    assert tokens(lambda: fn.readers.parquet(path=str(tmp_path / "t.parquet"), columns="image", storage=storage)) == {
        None
    }
    assert tokens(lambda: fn.readers.file(file_list=str(tmp_path / "list"), storage=storage)[0]) == {None}
    root = url.rpartition("/")[0]  # a URL that the user names, so that its host gets the options
    assert tokens(lambda: fn.readers.file(file_list=str(tmp_path / "list"), file_root=root, storage=storage)[0]) == {
        "Bearer TOKENxyz123"
    }
    other_host = root.replace("127.0.0.1", "localhost")
    assert tokens(
        lambda: fn.readers.file(file_list=str(tmp_path / "list"), file_root=other_host, storage=storage)[0]
    ) == {None}


def test_options_in_a_serialized_pipeline_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"a")

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.file(files=[str(tmp_path / "a")], storage=jaxdali.Storage(retries=7))[0]

    text = pipeline().serialize().decode()
    assert np.asarray(Pipeline.deserialize(text).run()[0][0]).tobytes() == b"a"
    with pytest.raises(RuntimeError, match="can't hold options"):
        Pipeline.deserialize(text.replace('"retries": 7', '"retries": 7, "options": {"protocol": "reference"}'))


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("s3://keyid:hunter2pass@bucket/x", ValueError('Invalid bucket name "keyid:hunter2pass@bucket"')),
        ("ftp://me:hunter2%40pass@host/x", RuntimeError("530 login of me with hunter2@pass failed")),
        ("https://h/x?X-Amz-Signature=SIGNATUREabc&id=17", OSError("bad signature SIGNATUREabc of /x")),
        ("https://h/x?sig=SIGNATUREabc%3D", TimeoutError("SIGNATUREabc= is too old")),
    ],
)
def test_library_texts_with_parts_of_urls(monkeypatch, url, error):
    def fails(self, path):
        raise error

    monkeypatch.setattr(Store, "_new_filesystem", fails)
    store = jaxdali.Storage(retries=0).open()
    with pytest.raises(OSError) as caught:  # noqa: PT011
        store.read(url)
    store.close()
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "***" in text
    assert not [s for s in (*SECRETS, "hunter2", "SIGNATURE") if s in text]
