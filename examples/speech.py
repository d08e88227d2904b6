"""Shows log-mel features of speech, as RNN-T and QuartzNet get them, from a manifest of recordings.

    python examples/speech.py [--manifest train.json] [--output speech.png]

It needs soundfile and matplotlib: pip install soundfile matplotlib

Without a manifest it makes a few recordings of its own, of tones that rise and fall. The features
are normalised and padded; for training, parts of them are masked.
"""

import argparse
import json
import pathlib
import tempfile
import wave
from typing import Any

import numpy as np

from jaxdali import fn, types
from jaxdali.plugin.jax import data_iterator

RATE, MELS = 16000, 80


@data_iterator(output_map=["features", "text"], reader_name="speech")
def speech(manifest, train=True, dither=1e-5):
    """Returns the features of recordings, and their texts."""
    read: Any = fn.readers.nemo_asr(
        manifest_filepaths=manifest,
        sample_rate=RATE,
        antialias=True,
        read_sample_rate=False,
        random_shuffle=train,
        name="speech",
    )
    audio, text = read
    begin, length = fn.nonsilent_region(audio, cutoff_db=-60.0, window_length=512)
    audio = fn.slice(audio, begin, length, axes=[0])
    if train:
        audio = audio + dither * fn.random.normal(audio)
    audio = fn.preemphasis_filter(audio, preemph_coeff=0.97)
    power = fn.spectrogram(audio, nfft=512, window_length=320, window_step=160)
    mel = fn.mel_filter_bank(power, sample_rate=float(RATE), nfilter=MELS)
    # Natural logarithms.
    features = fn.to_decibels(mel, multiplier=float(np.log(10)), reference=1.0, cutoff_db=-80.0)
    features = fn.normalize(features, axes=[1], epsilon=1e-5)  # normalises each band separately
    if train:  # SpecAugment: two bands of frequencies, and a span of time
        band_starts = fn.random.uniform(range=(0.0, 0.9), shape=[2])
        band_sizes = fn.random.uniform(range=(0.0, 0.15), shape=[2])
        time_start = fn.random.uniform(range=(0.0, 0.8), shape=[1])
        time_size = fn.random.uniform(range=(0.0, 0.1), shape=[1])
        relative: Any = {"normalized_anchor": True, "normalized_shape": True, "fill_value": 0.0}
        features = fn.erase(features, anchor=band_starts, shape=band_sizes, axes=[0], **relative)
        features = fn.erase(features, anchor=time_start, shape=time_size, axes=[1], **relative)
    features = fn.pad(features, axes=[1], align=[16], fill_value=0.0)
    return features, fn.pad(fn.cast(text, dtype=types.INT32), fill_value=0)


def recordings(folder: pathlib.Path) -> pathlib.Path:
    """Writes tones, with silence before and after, and a manifest of them; returns its path."""
    rng, lines = np.random.default_rng(0), []
    for i, seconds in enumerate([2.0, 2.6, 1.7, 3.1]):
        time = np.arange(int(seconds * RATE)) / RATE
        pitch = 180 + 60 * np.sin(2 * np.pi * (0.5 + 0.2 * i) * time)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        formant = 900 + 500 * np.sin(3 * time + i)
        voice = np.zeros_like(time)
        for k in range(1, 30):  # the harmonics near the formant are the loudest
            voice += np.sin(k * phase) * np.exp(-(((k * pitch - formant) / 600) ** 2))
        voice *= 0.2 * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time))
        voice += rng.normal(0, 1e-3, len(time))
        samples = np.concatenate([np.zeros(RATE // 2), voice, np.zeros(RATE // 3)])
        path = folder / f"{i}.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes((samples * 32767).clip(-32768, 32767).astype(np.int16).tobytes())
        duration = len(samples) / RATE
        line = {"audio_filepath": str(path), "duration": duration, "text": f"tone {i}"}
        lines.append(json.dumps(line))
    manifest = folder / "manifest.json"
    manifest.write_text("\n".join(lines))
    return manifest


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--manifest", help="a NeMo manifest; without one, recordings are made")
    parser.add_argument("--output", default="speech.png", help="the picture")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = args.manifest or str(recordings(pathlib.Path(folder)))
        batches = {
            "evaluation": next(speech(manifest, train=False, batch_size=4, seed=1)),
            "training": next(speech(manifest, train=True, batch_size=4, seed=1)),
        }
    for use, batch in batches.items():
        texts = [bytes(t[t > 0].astype(np.uint8)).decode() for t in np.asarray(batch["text"])]
        print(use, {name: x.shape for name, x in batch.items()}, texts)

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 5), layout="constrained")
    for row, (use, batch) in zip(axes, batches.items()):
        for k, axis in enumerate(row):
            features = np.asarray(batch["features"][k])
            axis.imshow(features, origin="lower", aspect="auto", cmap="magma")
            axis.set(title=f"{use}, recording {k}", xlabel="time, 10 ms", ylabel="mel band")
    figure.savefig(args.output, dpi=80)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
