"""Operators on sound beside their definitions; DALI's numbers are in the golden data."""

import io
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pipelines import run

from jaxdali import SampleError, Storage, _cpu, fn, pipeline_def, types
from jaxdali import dynamic as jd
from jaxdali.fn._audio import files, resampling
from jaxdali.fn._audio.mel_filter_bank import filters

RNG = np.random.default_rng(3)
SIGNALS = [RNG.normal(0, 1, n).astype(np.float32) for n in (700, 431, 1000)]


def arrays(outputs):
    return [np.array(x) for x in outputs]


def encoded(x, rate=16000, kind="WAV", **how):
    soundfile = pytest.importorskip("soundfile")
    with io.BytesIO() as f:
        soundfile.write(f, x, rate, format=kind, **how)
        return np.frombuffer(f.getvalue(), np.uint8)


def chain(x):
    x = fn.preemphasis_filter(x, preemph_coeff=0.9)
    x = fn.spectrogram(x, nfft=64, window_length=50, window_step=20)
    return fn.mfcc(fn.to_decibels(fn.mel_filter_bank(x, sample_rate=16000.0, nfilter=12), cutoff_db=-60.0), n_mfcc=5)


def test_ragged_and_dense_batches_are_equal():
    """Also if the batch is made in a program, and for a signal in a batch of its own."""
    (ragged,) = run(chain, SIGNALS)
    (moved,) = run(chain, SIGNALS, on_device=True)
    for x, cepstra, moved_cepstra in zip(SIGNALS, arrays(ragged), arrays(moved), strict=True):
        assert cepstra.shape == (5, len(x) // 20 + 1)
        np.testing.assert_array_equal(cepstra, moved_cepstra)
        (dense,) = run(chain, [x, x])
        np.testing.assert_allclose(arrays(dense)[1], cepstra, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize(("nfft", "power"), [(1, 2), (61, 1), (400, 2), (509, 1), (512, 2)])
@pytest.mark.parametrize("mels", [0, 20])
def test_the_native_spectrogram(nfft, power, mels):
    """The kernel of CPU programs matches the definition, which other devices run; also for prime lengths."""
    rng = np.random.default_rng(nfft)
    signals = [rng.normal(size=n).astype(np.float32) for n in (700, 1201, 3)]
    length = max(nfft - 7, 1)

    def define(x):
        x = fn.spectrogram(x, nfft=nfft, window_length=length, window_step=11, power=power)
        return fn.mel_filter_bank(x, nfilter=mels, sample_rate=16000.0, normalize=False) if mels else x

    for x, spectrum in zip(signals, arrays(run(define, signals)[0]), strict=True):
        window = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(length) + 0.5) / length)
        padded = np.pad(x.astype(np.float64), length // 2 + 1, "reflect")[1:]
        want = np.stack(
            [np.abs(np.fft.rfft(padded[11 * i :][:length] * window, nfft)) ** power for i in range(len(x) // 11 + 1)],
            axis=1,
        )
        if mels:
            want = filters(nfft // 2 + 1, mels, 16000.0, 0.0, 8000.0, False, False) @ want
        np.testing.assert_allclose(spectrum, want, rtol=0, atol=1e-5 * max(want.max(), 1e-3))


def test_cpu_kernel_has_derivatives():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 300)), jnp.float32)

    def f(x):
        return jnp.sum(jd.spectrogram(x, window_length=40, window_step=9).jax())

    assert "jaxdali_spectrogram" in jax.jit(f).lower(x).as_text()
    step = np.zeros_like(x)
    step[1, 77] = 1e-2
    slope = (f(x + step) - f(x - step)) / 2e-2
    np.testing.assert_allclose(jax.grad(f)(x)[1, 77], slope, rtol=1e-2)


@pytest.mark.parametrize("layout", ["ft", "tf"])
@pytest.mark.parametrize(("center", "reflect"), [(True, True), (True, False), (False, True)])
def test_spectrogram(layout, center, reflect):
    """Also for short signals, in which windows extend beyond both ends."""
    signals = [*SIGNALS, SIGNALS[0][:7], SIGNALS[0][:33]] if center else [*SIGNALS, SIGNALS[0][:38]]
    (outputs,) = run(
        lambda x: fn.spectrogram(
            x, window_length=40, window_step=9, nfft=48, center_windows=center, reflect_padding=reflect, layout=layout
        ),
        signals,
    )
    window = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(40) + 0.5) / 40)
    for x, spectrum in zip(signals, arrays(outputs), strict=True):
        frames = len(x) // 9 + 1 if center else max(len(x) - 40, 0) // 9 + 1
        x = (
            np.pad(x.astype(np.float64), 20, "reflect" if reflect else "constant")
            if center
            else np.pad(x, (0, max(40 - len(x), 0)))
        )
        want = np.abs(np.fft.rfft(np.stack([x[9 * i :][:40] * window for i in range(frames)]), 48)) ** 2
        np.testing.assert_allclose(spectrum if layout == "tf" else spectrum.T, want, rtol=0, atol=1e-5 * want.max())


def test_vector_lengths_unknown_until_the_batch():
    """Each sample has filters for its own number of frequencies."""
    power = [RNG.random((n, 3)).astype(np.float32) for n in (33, 65)]
    (outputs,) = run(lambda x: fn.mel_filter_bank(x, nfilter=4, sample_rate=8000.0), power)
    for x, vectors in zip(power, arrays(outputs), strict=True):
        (single,) = run(lambda x: fn.mel_filter_bank(x, nfilter=4, sample_rate=8000.0), [x, x])
        np.testing.assert_allclose(vectors, arrays(single)[0], rtol=1e-6)
    (outputs,) = run(lambda x: fn.power_spectrum(x, axis=0), power)
    for x, vectors in zip(power, arrays(outputs), strict=True):
        np.testing.assert_allclose(vectors, np.abs(np.fft.rfft(x, axis=0)) ** 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("bins", "how", "place", "weight"),
    [
        (11, (49, 16000.0, 6100.36572265625, 8000.0, False, "slaney"), (48, 10), 0.0),  # the bin at freq_high
        (283, (115, 16000.0, 7375.88671875, 0.0, True, "slaney"), (114, 282), 0.0),
        # Its number is rounded up.
        (598, (58, 11025.0, 2714.698486328125, 0.0, False, "slaney"), (57, 597), 7.4221966e-06),
        (109, (137, 44100.0, 12862.5, 0.0, True, "slaney"), (0, 63), 0.0),  # the bin at freq_low: rounded up
        (53, (71, 16000.0, 4000.0, 7692.3076171875, False, "htk"), (0, 26), 0.0),
        # Expf, logf.
        (274, (141, 16000.0, 1553.113525390625, 3106.22705078125, False, "slaney"), (98, 86), 0.8354835510253906),
        (288, (135, 8000.0, 1312.6888427734375, 3664.656005859375, False, "htk"), (74, 171), 0.937525749206543),
    ],
)
def test_narrow_mel_filters_match_dali(bins, how, place, weight):
    """Also at the filters' ends. The weights are those of DALI 2.4 for spectra of one frequency each."""
    names = ("nfilter", "sample_rate", "freq_low", "freq_high", "normalize", "mel_formula")
    (weights,) = run(
        lambda x: fn.mel_filter_bank(x, **dict(zip(names, how, strict=True))), [np.eye(bins, dtype=np.float32)]
    )
    weights = arrays(weights)[0]
    np.testing.assert_allclose(weights[place], weight, rtol=0, atol=1e-7 * weights.max())


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_mfcc(kind):
    """Against the sums that define the transforms, with librosa's lifter."""
    x, n, k = RNG.normal(0, 10, (9, 4)).astype(np.float32), 9, np.arange(6)[:, None]
    i = np.arange(n)
    half = np.where((i == 0) | ((i == n - 1) & (kind == 1)), 0.5, 1) if kind in (1, 3) else 1
    angle = {1: i * k / (n - 1), 2: (i + 0.5) * k / n, 3: i * (k + 0.5) / n, 4: (i + 0.5) * (k + 0.5) / n}[kind]
    want = (np.cos(np.pi * angle) * half) @ x * (1 + 11 * np.sin(np.pi * (k + 1) / 22))
    (outputs,) = run(lambda x: fn.mfcc(x, n_mfcc=6, dct_type=kind, lifter=22.0), [x])
    np.testing.assert_allclose(arrays(outputs)[0], want, rtol=0, atol=4e-4)
    (negative,) = run(lambda x: fn.mfcc(x, n_mfcc=6, dct_type=kind, lifter=-22.0), [x])
    np.testing.assert_array_equal(arrays(negative)[0], arrays(outputs)[0])  # the formula is even


def test_mfcc_without_mels():
    (outputs,) = run(lambda x: fn.mfcc(x, normalize=True), [np.zeros((0, 2), np.float32)])
    assert arrays(outputs)[0].shape == (0, 2)


def test_decibels_of_odd_numbers():
    x = np.array([np.nan, 4, np.inf, 0, -1, 1e-30], np.float32)
    (outputs,) = run(lambda x: fn.to_decibels(x, reference=2.0, cutoff_db=-90.0), [x])
    np.testing.assert_allclose(arrays(outputs)[0], [-90, 10 * np.log10(2), np.inf, -90, -90, -90], rtol=1e-6)
    (outputs,) = run(
        lambda x: fn.to_decibels(x), [np.zeros(3, np.float32), np.float32([1, 2]), np.zeros(0, np.float32)]
    )
    assert arrays(outputs)[0].tolist() == pytest.approx([-200] * 3)
    assert arrays(outputs)[1].tolist() == pytest.approx([10 * np.log10(0.5), 0])


def test_silence():
    """Against a loop over all windows."""
    x = np.concatenate([np.zeros(100), RNG.normal(0, 0.5, 60), np.zeros(80), [0.3], np.zeros(50)]).astype(np.float32)
    power = [np.mean(x[i : i + 16].astype(np.float64) ** 2) for i in range(len(x) - 15)]
    on = [i for i, p in enumerate(power) if p >= max(power) * 1e-3]
    begin, length = run(lambda x: fn.nonsilent_region(x, window_length=16, cutoff_db=-30.0), [x, x[:0], x[:20]])
    assert [int(v) for v in arrays(begin)] == [on[0], 0, 0]
    assert [int(v) for v in arrays(length)] == [on[-1] + 16 - on[0], 0, 20]

    def trimmed(x):
        begin, length = fn.nonsilent_region(x, window_length=16, cutoff_db=-30.0)
        return fn.slice(x, begin, length, axes=[0])

    (outputs,) = run(trimmed, [x])
    np.testing.assert_array_equal(arrays(outputs)[0], x[on[0] : on[-1] + 16])


@pytest.mark.parametrize(
    ("call", "x", "message"),
    [
        (fn.to_decibels, np.ones(3, np.int32), "to_decibels .*float32, got int32"),
        (lambda x: fn.to_decibels(x, reference=0.0), np.ones(3, np.float32), "to_decibels.*reference must not be 0"),
        (
            lambda x: fn.mel_filter_bank(x, freq_low=900.0, freq_high=800.0),
            np.ones((3, 2), np.float32),
            "freq_high must be above",
        ),
        (lambda x: fn.mfcc(x, axis=2), np.ones((3, 2), np.float32), "mfcc .*argument axis must be less"),
        (lambda x: fn.mfcc(x, dct_type=1, normalize=True), np.ones((3, 2), np.float32), "normalize must be False"),
        (lambda x: fn.spectrogram(x, nfft=100), np.ones(900, np.float32), "nfft must be at least window_length=512"),
        (
            lambda x: fn.spectrogram(x, window_fn=[1.0, 2.0]),
            np.ones(900, np.float32),
            "window_fn must have window_length=512 numbers",
        ),
        (lambda x: fn.spectrogram(x), np.ones((90, 2), np.float32), "one channel"),
        (lambda x: fn.spectrogram(x, center_windows=False), np.ones(90, np.float32), "too short"),
        (
            lambda x: fn.power_spectrum(x, axis=1),
            np.ones(90, np.float32),
            "axis must be one of the input's 1 dimensions",
        ),
        (lambda x: fn.nonsilent_region(x)[0], np.ones((90, 1), np.float32), "1-D signal"),
        (
            lambda x: fn.nonsilent_region(x, window_length=5)[0],
            np.ones(90, np.float32),
            "reset_interval must be -1 or a multiple",
        ),
        (lambda x: fn.audio_resample(x), np.ones(90, np.float32), "one of scale, out_length, or in_rate and out_rate"),
        (
            lambda x: fn.audio_resample(x, in_rate=2.0),
            np.ones(90, np.float32),
            "in_rate and out_rate must be given together",
        ),
        (lambda x: fn.preemphasis_filter(x), np.ones(90, bool), "got bool"),
        (lambda x: fn.decoders.audio(x)[0], np.ones(90, np.uint8), "decoders.audio"),
    ],
)
def test_invalid_arguments_are_refused(call, x, message):
    pytest.importorskip("soundfile")
    with pytest.raises(Exception, match=message):
        run(call, [x])


def test_a_bad_file_is_named():
    good = encoded(SIGNALS[0])
    for bad, reason in ((good[:30], "No 'data' chunk"), (np.zeros(100, np.uint8), "Format not recognised")):
        with pytest.raises(SampleError, match=rf"decoders\.audio .*: sample 1: it can't be decoded: .*{reason}"):
            run(lambda x: fn.decoders.audio(x)[0], [good, bad])


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_damaged_files(kind):
    """Files with changed bytes, or cut off: libsndfile's signal, or a ValueError."""
    soundfile = pytest.importorskip("soundfile")
    good = encoded(SIGNALS[1] / 8, kind=kind, subtype="PCM_16")
    refused = 0
    for _ in range(300):
        bad = good[: RNG.integers(len(good) + 1) if RNG.random() < 0.5 else None].copy()
        if len(bad):
            bad[RNG.integers(0, min(len(bad), 60), RNG.integers(1, 4))] = RNG.integers(0, 256)
        try:
            x, rate = files.read(bad.data, Storage(), np.dtype(np.float32), False)
        except ValueError:
            refused += 1
            continue
        with soundfile.SoundFile(io.BytesIO(bad.tobytes())) as f:
            np.testing.assert_array_equal(x, f.read(dtype="float32", always_2d=True))
            assert rate == f.samplerate
    assert 20 < refused < 290, "the damage should make some files unreadable, and leave others readable"


@pytest.mark.parametrize("antialias", [False, True])
def test_resampled_signals_are_limited(tmp_path, antialias):
    """A WAV file that says 10 Hz: at 16 kHz, its 1000 samples would be 1.6 million, of 4 bytes each."""
    wav = encoded(np.zeros((1000, 2))).copy()
    wav[24:28] = np.frombuffer(np.int32(10).tobytes(), np.uint8)
    (tmp_path / "a.wav").write_bytes(wav.tobytes())

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline(limit, rate, downmix):
        data, _ = fn.readers.file(files=[tmp_path / "a.wav"], storage=Storage(max_record_bytes=limit))
        rates = fn.external_source(lambda: [np.float64(rate)], batch=True)
        return fn.decoders.audio(data, sample_rate=rates, downmix=downmix, antialias=antialias, quality=0)[0]

    for limit, rate, downmix, reason in (
        (6_399_999, 16000, True, "its 1000 samples at 10 Hz would become 1600000 at sample_rate=16000"),
        (8_799, 11, False, "its 1000 samples at 10 Hz would become 1100 at sample_rate=11"),
        (1 << 30, 1e30, True, f"its 1000 samples at 10 Hz would become {2**62} at"),
    ):
        with pytest.raises(SampleError, match=rf"a\.wav: {reason}.*\(max_record_bytes={limit}\)"):
            pipeline(limit, rate, downmix).run()
    pipe = pipeline(8_800, 11, False)
    assert np.asarray(pipe.run()[0][0]).shape == (1100, 2)
    pipe.close()


@pytest.mark.parametrize(
    ("argument", "values", "length"),
    [
        ("scale", [1e9, 3e5], 10**12),
        ("out_length", [2**60, 3 * 10**8], 2**60),
        ("in_rate", [1e-300, 1e-9], 2**62),
    ],
)
def test_large_results_are_refused(argument, values, length):
    x, more = np.ones(1000, np.float32), {"out_rate": 1e300} if argument == "in_rate" else {}
    for value in values:
        result = length if value is values[0] else r"\d+"
        values_of_samples = [np.float64(1e300 if more else 1), np.float64(value)]
        with pytest.raises(
            SampleError, match=rf"audio_resample .*: sample 1: its 1000 samples would become {result}, "
        ):
            run(lambda x, y: fn.audio_resample(x, **{argument: y}, **more), [x, x], values_of_samples)


@pytest.mark.parametrize(
    ("rates", "length"),
    [
        ({"scale": 1.1}, 158401),
        ({"scale": 0.7}, 100800),
        ({"in_rate": 0.1, "out_rate": 0.3}, 432001),
        ({"in_rate": 16000.1, "out_rate": 44100.3}, 396901),
        ({"in_rate": 1e300, "out_rate": 1e300}, 144000),
    ],
)
def test_rates_are_single_precision(rates, length):
    """The lengths are DALI's, but the last: its rates are no numbers there."""
    (outputs,) = run(lambda x: fn.audio_resample(x, **rates), [np.zeros(144000, np.float32)])
    assert arrays(outputs)[0].shape == (length,)


@pytest.mark.parametrize(("scale", "length"), [(1 / 3, 700), (16000 / 44100, 900), (0.9, 1800), (2.7, 5300), (3e-3, 9)])
@pytest.mark.parametrize(("quality", "lobes"), [(0, 3), (33, 8), (50, 16), (100, 64)])
def test_resampling_by_its_formula(scale, length, quality, lobes):
    """Positions add up in single precision, in blocks of 256; all else is in double precision. Results may go on behind
    the signal.
    """
    x = RNG.uniform(-1, 1, (2000, 3)).astype(np.float32)
    table = resampling._hann(lobes)[1:-4]
    distances = np.arange(-32 * lobes, 32 * lobes + 1) / 32
    want = np.empty((length, 3))
    for o in range(length):
        if o % 256 == 0:
            whole = np.floor(o / scale)
            position = np.float32(o / scale - whole)
        weights = np.interp(np.arange(2000) - (whole + np.float64(position)), distances, table, 0, 0)
        want[o] = weights @ x
        position += np.float32(1 / scale)
    result = resampling.resampled(x, scale, length, quality)
    np.testing.assert_allclose(result, want, rtol=0, atol=2e-5)
    # To the bit the same without the other channels, and in memory that is not contiguous.
    np.testing.assert_array_equal(resampling.resampled(x[:, 1], scale, length, quality), result[:, 1])


@pytest.mark.parametrize("quality", [0, 50])
def test_infinite_samples_reach_their_neighbours_only(quality):
    x = RNG.uniform(-1, 1, 600).astype(np.float32)
    y = np.where(np.arange(600) == 300, np.inf, x).astype(np.float32)
    x, y = (resampling.resampled(x, 1.5, 900, quality) for x in (x, y))
    far = np.abs(np.arange(900) / 1.5 - 300) > resampling.lobes_of(quality)
    np.testing.assert_array_equal(x[far], y[far])
    assert not np.isfinite(y[450])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": np.empty((5, 1), np.float32)}, "numbers of channels differ"),
        ({"table": np.zeros(71, np.float32)}, "no table has this size"),
        ({"table": np.zeros(64 * 65 + 6, np.float32)}, "no table has this size"),
        ({"step": 0.0}, "step must be"),
        ({"step": np.nan}, "step must be"),
        ({"step": 1e18}, "step must be"),
    ],
)
def test_bounds_of_native_resampling(change, message):
    arguments = {"x": np.ones((9, 2), np.float32), "step": 2.0, "table": resampling._hann(3)}
    with pytest.raises(ValueError, match=message):
        _cpu.resample(**(arguments | {"out": np.empty((5, 2), np.float32)} | change))


@pytest.mark.parametrize("scale", [1e-30, 1e-320])
def test_rates_far_below(scale):
    """The low-pass then is wider than any signal, and nearly constant: the sum of the signal, times its height."""
    x = RNG.normal(1, 1, 5000).astype(np.float32)
    assert resampling.resampled(x, scale, 1, 50)[0] == x[0]
    low_pass = resampling.resampled(x, scale, 1, 50, antialias=True)
    assert low_pass[0] == pytest.approx(0.975 * scale * x.sum(), rel=1e-3)
    x = np.ones(300_000, np.float32)
    assert resampling.resampled(x, 1e-6, 1, 50, antialias=True)[0] == pytest.approx(0.975e-6 * len(x), rel=0.15)


@pytest.mark.parametrize(("rate", "to"), [(48000, 16000), (44100, 16000), (16000.5, 48000)])
def test_low_pass_in_parts(rate, to, monkeypatch):
    """However many products are in memory at a time, results are the same to the bit."""
    x = RNG.normal(0, 1, (30_000, 2)).astype(np.float32)
    whole = resampling.resampled(x, to / rate, 12_000, 50, antialias=True)
    monkeypatch.setattr(resampling, "_MAX_TERMS", 1 << 16)
    np.testing.assert_array_equal(resampling.resampled(x, to / rate, 12_000, 50, antialias=True), whole)


def test_header_with_too_many_samples():
    flac = encoded(SIGNALS[0], kind="FLAC").copy()
    flac[21:26] |= np.uint8([0x0F, 0xFF, 0xFF, 0xFF, 0xFF])  # the number of samples
    with pytest.raises(ValueError, match="max_record_bytes"):
        files.read(flac.data, Storage(), np.dtype(np.float32), False)


@pytest.mark.parametrize("dtype", [types.FLOAT, types.INT16, types.INT32])
@pytest.mark.parametrize("channels", [1, 2])
def test_plain_wav(dtype, channels):
    """16-bit PCM is read without libsndfile, with the same result; also with further chunks around the data."""
    soundfile = pytest.importorskip("soundfile")
    x = np.stack([s[:400] / 4 for s in [SIGNALS[0], SIGNALS[2]]][:channels], 1)
    wav = encoded(x, subtype="PCM_16").tobytes()
    with_chunks = (
        wav[:36] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + wav[36:] + b"junk" + struct.pack("<I", 2) + b"ab"
    )
    with_chunks = with_chunks[:4] + struct.pack("<I", len(with_chunks) - 8) + with_chunks[8:]
    contents = [np.frombuffer(f, np.uint8) for f in (wav, with_chunks, wav[:-7])]  # the last is cut off
    outputs, rate = run(lambda x: fn.decoders.audio(x, dtype=dtype), contents)
    assert [float(r) for r in arrays(rate)] == [16000.0] * 3
    for file, signal in zip(contents, arrays(outputs), strict=True):
        want, _ = soundfile.read(io.BytesIO(file.tobytes()), dtype=signal.dtype.name, always_2d=True)
        np.testing.assert_array_equal(signal, want)


@pytest.mark.parametrize("dtype", [types.INT16, types.INT32])
@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        ("WAV", "FLOAT"),
        ("WAV", "DOUBLE"),
        ("AIFF", "FLOAT"),
        ("CAF", "DOUBLE"),
        ("W64", "FLOAT"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
    ],
)
def test_integers_of_files_of_floats(kind, subtype, dtype):
    """Quiet and loud signals, with and without `downmix`: full scale is the whole range, and the rest saturates."""
    soundfile = pytest.importorskip("soundfile")
    if not soundfile.check_format(kind, subtype):
        pytest.skip(f"this libsndfile has no {subtype}")
    t = np.arange(3000)[:, None] / (17, 17.3)
    lossy = kind == "OGG"  # encoders cut samples above full scale; square waves overshoot when they are decoded
    signals = (
        [np.sign(np.sin(t)) * 0.999, np.sin(t) * 0.7]
        if lossy
        else [np.sin(t) * 3, np.sin(t) * 0.7, np.full((9, 2), -np.inf)]
    )
    contents = [encoded(x, 48000, kind, subtype=subtype) for x in signals]
    floats = [soundfile.read(io.BytesIO(c.tobytes()), dtype="float64", always_2d=True)[0] for c in contents]
    assert np.abs(floats[0]).max() > 1
    limits = np.iinfo(types.to_numpy_type(dtype))
    both, mean = run(
        lambda x: (fn.decoders.audio(x, dtype=dtype)[0], fn.decoders.audio(x, dtype=dtype, downmix=True)[0]), contents
    )
    for x, signal, mixed in zip(floats, arrays(both), arrays(mean), strict=True):
        want = np.clip(x * limits.max, limits.min, limits.max)
        np.testing.assert_allclose(signal.astype(float), want, rtol=0, atol=1.5)
        want = np.clip(x.mean(1) * limits.max, limits.min, limits.max)
        np.testing.assert_allclose(mixed.astype(float), want, rtol=3e-7, atol=1 + limits.max * 1e-7)


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_formats(kind):
    """Against libsndfile itself, mixed to one channel."""
    soundfile = pytest.importorskip("soundfile")
    if kind not in soundfile.available_formats():
        pytest.skip(f"this libsndfile has no {kind}")
    t = np.arange(4000) / 16000
    file = encoded(np.stack([0.3 * np.sin(t * 3000), 0.4 * np.sin(t * 5000)], 1), kind=kind)
    outputs, rate = run(lambda x: fn.decoders.audio(x, downmix=True, sample_rate=fn.constant(fdata=8000.0)), [file])
    want, _ = soundfile.read(io.BytesIO(file.tobytes()))
    assert float(arrays(rate)[0]) == 8000
    assert len(arrays(outputs)[0]) == len(want) // 2
    np.testing.assert_allclose(arrays(outputs)[0][50:-50], want.mean(axis=1)[::2][50:-50], atol=2e-3)


def level(x, frequency, rate):
    """Amplitude of a tone in decibels, over the middle of a signal."""
    x = x[len(x) // 4 : -len(x) // 4]
    window = np.blackman(len(x))
    return 20 * np.log10(
        max(
            abs(np.sum(x * window * np.exp(-2j * np.pi * frequency / rate * np.arange(len(x))))) * 2 / window.sum(),
            1e-9,
        )
    )


@pytest.mark.parametrize(("rate", "to"), [(44100, 16000), (48000, 8000), (16000, 11025), (22050, 16001.5)])
@pytest.mark.parametrize("quality", [50.0, 80.0, 100.0])
def test_antialias(rate, to, quality):
    """Tones above 1.1 of the new Nyquist frequency lose 80 dB, tones below 0.85 of it at most 0.1 dB."""
    t, nyquist = np.arange(rate // 4) / rate, to / 2
    passed = [f * nyquist for f in (0.02, 0.3, 0.6, 0.8, 0.85)]
    stopped = [
        f
        for f in (1.1 * nyquist, 1.15 * nyquist, 1.3 * nyquist, 2.1 * nyquist, 0.97 * rate / 2)
        if 1.1 * nyquist <= f < rate / 2
    ]
    tones = [np.sin(2 * np.pi * f * t).astype(np.float32) for f in passed + stopped]
    (outputs,) = run(
        lambda x: fn.audio_resample(x, in_rate=float(rate), out_rate=float(to), quality=quality, antialias=True), tones
    )
    for f, y in zip(passed, arrays(outputs), strict=False):
        assert abs(level(y, f, to)) < 0.1, f
    for f, y in zip(stopped, arrays(outputs)[len(passed) :], strict=True):
        middle = y[len(y) // 4 : -len(y) // 4]
        assert 20 * np.log10(np.abs(middle).max()) < -80, f


def test_antialias_beside_soxr():
    """The same band of noise, by a resampler with another method."""
    soxr = pytest.importorskip("soxr")
    noise = soxr.resample(RNG.normal(0, 0.1, 8000).astype(np.float32), 6000, 44100, quality="VHQ")
    (outputs,) = run(lambda x: fn.audio_resample(x, in_rate=44100.0, out_rate=16000.0, antialias=True), [noise])
    want = soxr.resample(noise, 44100, 16000, quality="VHQ")
    np.testing.assert_allclose(arrays(outputs)[0][200 : len(want) - 200], want[200:-200], atol=2e-4)


def test_dalis_resampler_lets_tones_alias():
    """The reason for `antialias`: 12 kHz come out as 4 kHz."""
    tone = np.sin(2 * np.pi * 12000 * np.arange(44100) / 44100).astype(np.float32)
    (aliased,) = run(lambda x: fn.audio_resample(x, in_rate=44100.0, out_rate=16000.0), [tone])
    assert abs(level(arrays(aliased)[0], 4000, 16000)) < 0.5
    (clean,) = run(lambda x: fn.audio_resample(x, in_rate=44100.0, out_rate=16000.0, antialias=True), [tone])
    assert np.abs(arrays(clean)[0][200:-200]).max() < 1e-4


def test_rates_and_coefficients_of_each_sample():
    def define(x, scale, coefficient):
        return fn.audio_resample(x, scale=scale), fn.preemphasis_filter(x, preemph_coeff=coefficient)

    resampled, filtered = run(
        define, SIGNALS, [np.float32(s) for s in (0.5, 2, 1)], [np.float32(c) for c in (0, 0.5, 1)]
    )
    assert [len(x) for x in arrays(resampled)] == [350, 862, 1000]
    for x, signal, c in zip(SIGNALS, arrays(filtered), (0, 0.5, 1), strict=True):
        np.testing.assert_allclose(signal, x - c * np.append(x[0], x[:-1]), atol=1e-6)


def test_on_the_accelerator_and_in_one_program():
    """A whole chain from files, in a pipeline with values on JAX's device."""
    contents = [encoded(x / 8) for x in SIGNALS]

    @pipeline_def(batch_size=3, num_threads=2)
    def pipeline():
        audio, _ = fn.decoders.audio(
            fn.external_source(source=lambda: contents, batch=True), downmix=True, device="mixed"
        )
        return chain(audio)

    (outputs,) = pipeline().run()
    for x, cepstra in zip(SIGNALS, arrays(outputs.as_cpu()), strict=True):
        (want,) = run(chain, [np.clip(np.round(x / 8 * 32767), -32768, 32767).astype(np.float32) / 32768])
        np.testing.assert_allclose(cepstra, arrays(want)[0], atol=0.2)
