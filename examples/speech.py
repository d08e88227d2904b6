"""Speech as RNN-T and QuartzNet get it: log-mel spectrograms, normalised, padded and masked, from a manifest of
recordings.

    python examples/speech.py --manifest train.json --output speech.png

Without a manifest it makes a few recordings of its own, of tones that rise and fall. Needs soundfile: pip install
"jaxdali[audio]".
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
    features = fn.to_decibels(mel, multiplier=float(np.log(10)), reference=1.0, cutoff_db=-80.0)  # natural logarithms
    features = fn.normalize(features, axes=[1], epsilon=1e-5)  # normalises each band separately
    if train:  # SpecAugment: two bands of frequencies, and a span of time
        anchor = fn.cat(fn.random.uniform(range=(0.0, 0.9), shape=[2]), fn.random.uniform(range=(0.0, 0.8), shape=[1]))
        size = fn.cat(fn.random.uniform(range=(0.0, 0.15), shape=[2]), fn.random.uniform(range=(0.0, 0.1), shape=[1]))
        features = fn.erase(
            features,
            anchor=anchor[:2],
            shape=size[:2],
            axes=[0],
            normalized_anchor=True,
            normalized_shape=True,
            fill_value=0.0,
        )
        features = fn.erase(
            features,
            anchor=anchor[2:],
            shape=size[2:],
            axes=[1],
            normalized_anchor=True,
            normalized_shape=True,
            fill_value=0.0,
        )
    return fn.pad(features, axes=[1], align=[16], fill_value=0.0), fn.pad(
        fn.cast(text, dtype=types.INT32), fill_value=0
    )


def recordings(folder: pathlib.Path) -> pathlib.Path:
    """A manifest of tones, with silence before and after."""
    rng, lines = np.random.default_rng(0), []
    for i, seconds in enumerate([2.0, 2.6, 1.7, 3.1]):
        t = np.arange(int(seconds * RATE)) / RATE
        pitch = 180 + 60 * np.sin(2 * np.pi * (0.5 + 0.2 * i) * t)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        voice = sum(
            np.sin(k * phase) * np.exp(-(((k * pitch - 900 - 500 * np.sin(3 * t + i)) / 600) ** 2))
            for k in range(1, 30)
        )
        voice = 0.2 * voice * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)) + rng.normal(0, 1e-3, len(t))
        x = np.concatenate([np.zeros(RATE // 2), voice, np.zeros(RATE // 3)])
        with wave.open(str(folder / f"{i}.wav"), "wb") as f:
            f.setparams((1, 2, RATE, 0, "NONE", ""))
            f.writeframes((x * 32767).clip(-32768, 32767).astype(np.int16).tobytes())
        lines.append(
            json.dumps({"audio_filepath": str(folder / f"{i}.wav"), "duration": len(x) / RATE, "text": f"tone {i}"})
        )
    (folder / "manifest.json").write_text("\n".join(lines))
    return folder / "manifest.json"


def main():
    parser = argparse.ArgumentParser(description="Speech as log-mel spectrograms.")
    parser.add_argument("--manifest", help="a NeMo manifest; without one, recordings are made")
    parser.add_argument("--output", default="speech.png", help="the picture")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = args.manifest or str(recordings(pathlib.Path(folder)))
        batches = {train: next(speech(manifest, train, batch_size=4, seed=1)) for train in (False, True)}
    for train, batch in batches.items():
        texts = [bytes(t[t > 0].astype(np.uint8)).decode() for t in np.asarray(batch["text"])]
        print("training" if train else "evaluation", {name: x.shape for name, x in batch.items()}, texts)

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(2, 2, figsize=(11, 5), layout="constrained")
    for row, (train, batch) in zip(axes, batches.items()):
        for k, place in enumerate(row):
            place.imshow(np.asarray(batch["features"][k]), origin="lower", aspect="auto", cmap="magma")
            place.set(
                title=f"{'training' if train else 'evaluation'}, recording {k}", xlabel="time, 10 ms", ylabel="mel band"
            )
    plt.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
