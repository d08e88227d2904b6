"""readers.nemo_asr: resampling as by DALI 2.4, and what can't be read; the rest is among tests/reader_cases.py."""

import json
import sys
import wave

import numpy as np
import pytest

from jaxdali import SampleError, Storage, fn, pipeline_def, types

pytest.importorskip("soundfile")


@pytest.fixture
def manifest(tmp_path):
    """Eight samples at 8 kHz."""
    with wave.open(str(tmp_path / "a.wav"), "wb") as f:
        f.setparams((1, 2, 8000, 0, "NONE", ""))
        f.writeframes(np.int16([0, 8192, -16384, 30000, 5, -1, 1000, 32767]).tobytes())
    (tmp_path / "x.json").write_text(json.dumps({"audio_filepath": str(tmp_path / "a.wav")}))
    return tmp_path / "x.json"


def read(path, **arguments):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.nemo_asr(manifest_filepaths=path, read_text=False, read_sample_rate=False, **arguments)

    return np.asarray(pipeline().run()[0][0])


DALI = {
    "11025 50": [
        -0.0,
        0.4301911,
        -0.3330914,
        -0.2974375,
        0.8550088,
        0.4649703,
        -0.1701503,
        0.0118133,
        -0.0385478,
        0.5800443,
        0.9529815,
        0.0223059,
    ],
    "16000 0": [
        -0.0,
        0.2102932,
        0.25,
        -0.246531,
        -0.5,
        0.2202333,
        0.9155273,
        0.6002867,
        0.0001526,
        -0.0966402,
        -3.05e-05,
        -0.0806497,
        0.0305176,
        0.6125314,
        0.9999695,
        0.5911223,
    ],
    "5000 100": [0.0, -0.5027168, 0.9083488, -0.0604247, 0.3988912],
}


@pytest.mark.parametrize(("rate", "quality"), [(11025, 50), (16000, 0), (5000, 100)])
def test_resampling(manifest, rate, quality):
    expected = DALI[f"{rate} {quality}"]
    samples = read(manifest, sample_rate=float(rate), quality=float(quality))
    np.testing.assert_allclose(samples, expected, rtol=0, atol=5e-7)
    samples = read(manifest, sample_rate=float(rate), quality=float(quality), dtype=types.INT16)
    np.testing.assert_allclose(samples, np.clip(np.array(expected) * 32767, -32768, 32767), rtol=0, atol=0.51)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_manifest_of_windows(manifest, encoding):
    expected = read(manifest)
    manifest.write_bytes(("\ufeff" + manifest.read_text()).encode(encoding))
    np.testing.assert_array_equal(read(manifest), expected)


def test_signals_are_limited(manifest):
    entry = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(entry) + json.dumps(entry | {"duration": 3 / 8000}))
    storage = Storage(max_record_bytes=100)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline(on_error="raise"):
        options = {"read_text": False, "read_sample_rate": False, "sample_rate": 32000, "storage": storage}
        return fn.readers.nemo_asr(manifest_filepaths=manifest, on_error=on_error, **options)

    with pytest.raises(
        SampleError, match=r"a\.wav: its 8 samples at 8000 Hz would become 32 at sample_rate=32000: .*=100\)"
    ):
        pipeline().run()
    assert [np.asarray(x).shape for x in pipeline(on_error="replace").run()[0]] == [(12,), (12,)]
    for more in ({"offset": 1e308}, {"offset": 1e305, "duration": 1e308}):
        manifest.write_text(json.dumps(entry | more))
        with pytest.raises(SampleError, match=rf"a\.wav: it has 8 samples, its offset is {2**62}"):
            read(manifest)
    manifest.write_text(json.dumps(entry | {"duration": 1e308}))
    assert len(read(manifest)) == 8


def test_unreadable_manifests_and_audio(manifest, monkeypatch):
    entry = json.loads(manifest.read_text())
    for text, message in (("[", "entry 0 does not have the form of a NeMo manifest"), ("{}", "KeyError"),
                      (json.dumps(entry) + "x", "entry 1"),
                      (json.dumps(entry | {"offset": float("nan")}), "entry 0 .*offset nan and duration -1.0 must be finite"),
                      (json.dumps(entry | {"duration": 1e999}), "must be finite"),
                      (json.dumps(entry | {"audio_filepath": "\ud800"}), r"entry 0: the name .* has the character '\\ud800'"),
                      ("", "no entry of .* is left"), (json.dumps(entry | {"text": None}), "entry 0")):  # fmt: skip
        manifest.write_text(text)
        with pytest.raises(RuntimeError, match=f"readers.nemo_asr.*{message}"):
            read(manifest)
    with pytest.raises(RuntimeError, match=r"can't read the manifest .*none: No such file"):
        read(manifest.with_name("none"))
    manifest.write_text(json.dumps(entry | {"offset": 1}))
    with pytest.raises(SampleError, match=r"a.wav: it has 8 samples, its offset is 8000"):
        read(manifest)
    manifest.write_text(json.dumps({"audio_filepath": str(manifest)}))
    with pytest.raises(SampleError, match=r"x.json: .*ormat"):
        read(manifest)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r'readers.nemo_asr .*pip install "jaxdali\[audio\]"'):
        read(manifest)
