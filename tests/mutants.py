"""Mutated files of sound and of video, read in a process of their own, which FFmpeg or libsndfile may end.

python -m mutants KIND OPERATOR FIRST LAST [BATCH]: reads the mutants with these numbers among good files, and checks that
these are read as without the mutants. Prints the numbers of each batch before it is read, and what became of them at
last.
"""

import io
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import videos

import jaxdali
from jaxdali import SampleError, fn, pipeline_def

LIMIT = 1 << 26  # Storage.max_record_bytes: a mutant that claims more is refused


def sounds(folder: pathlib.Path) -> dict[str, bytes]:
    """A file of each kind that libsndfile writes, by name."""
    import soundfile

    time = np.arange(3000)[:, None]
    signal = 0.4 * np.sin(time * [0.05, 0.083]) + np.random.default_rng(0).normal(0, 0.02, (3000, 2))
    kinds = {
        "pcm.wav": ("WAV", "PCM_16"),
        "float.wav": ("WAV", "FLOAT"),
        "law.wav": ("WAV", "ULAW"),
        "adpcm.wav": ("WAV", "IMA_ADPCM"),
        "extensible.wav": ("WAVEX", "PCM_24"),
        "flac.flac": ("FLAC", "PCM_16"),
        "vorbis.ogg": ("OGG", "VORBIS"),
        "opus.opus": ("OGG", "OPUS"),
        "layer3.mp3": ("MP3", "MPEG_LAYER_III"),
        "pcm.aiff": ("AIFF", "PCM_16"),
        "alac.caf": ("CAF", "ALAC_16"),
        "pcm.au": ("AU", "PCM_16"),
    }
    files = {}
    for number, (name, (form, subtype)) in enumerate(kinds.items()):
        if form not in soundfile.available_formats() or subtype not in soundfile.available_subtypes(form):
            continue
        content = io.BytesIO()
        soundfile.write(content, signal if number % 2 else signal[:, 0], 16000, format=form, subtype=subtype)
        files[name] = content.getvalue()
    return files


def clips(folder: pathlib.Path) -> dict[str, bytes]:
    """Small videos of those codecs that PyAV's FFmpeg has, by name."""
    import av

    kinds = {
        "h264.mp4": ("libx264", {"bf": "2"}),
        "h264.mkv": ("libx264", {}),
        "h264.ts": ("libx264", {}),
        "hevc.mp4": ("libx265", {}),
        "mpeg4.avi": ("mpeg4", {"bf": "2"}),
        "mpeg4.mp4": ("mpeg4", {}),
        "mpeg2.ts": ("mpeg2video", {}),
        "vp8.webm": ("libvpx", {}),
        "vp9.mkv": ("libvpx-vp9", {}),
        "av1.mp4": ("libsvtav1", {}),
        "jpeg.avi": ("mjpeg", {"form": "yuvj420p"}),
    }
    files = {}
    for name, (codec, options) in kinds.items():
        if codec in av.codec.codecs_available:
            path = videos.write(folder / name, 6, codec, size=(64, 64), gop=4, **options)
            files[name] = pathlib.Path(path).read_bytes()
    return files


KINDS: Mapping[str, Callable[[pathlib.Path], dict[str, bytes]]] = {"sound": sounds, "video": clips}


def mutant(content: bytes, number: int) -> bytes:
    """A file with one to three changes, most of them in its first bytes, where headers are."""
    rng = np.random.default_rng(number)
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        if not data:
            break
        begin = int(rng.integers(len(data) if rng.random() < 0.5 else min(len(data), 200)))
        size = int(rng.integers(1, 33))
        change = rng.integers(7)
        if change == 0:
            data[begin] ^= 1 << int(rng.integers(8))
        elif change == 1:
            data[begin : begin + 1] = rng.bytes(1)
        elif change == 2:  # a number of 4 bytes: the smallest and the largest ones
            data[begin : begin + 4] = bytes(
                [0, 0, 0, 0] if rng.random() < 0.3 else [255, 255, 255, int(rng.choice([127, 255]))]
            )
        elif change == 3:
            del data[int(len(data) * rng.uniform(0.3, 1)) :]
        elif change == 4:
            del data[begin : begin + size]
        elif change == 5:
            data[begin:begin] = data[begin : begin + size]
        else:
            place = int(rng.integers(len(data)))
            data[place : place + size] = data[begin : begin + size]
    return bytes(data)


def definition(operator: str, names: Sequence[str], manifest: pathlib.Path) -> Callable[[], tuple[Any, ...]]:
    """A definition: the data of each file, and the number of the file."""
    options: dict[str, Any] = {"storage": jaxdali.Storage(max_record_bytes=LIMIT)}
    if operator.startswith("readers"):
        options["on_error"] = "replace"
    if operator == "readers.nemo_asr":
        manifest.write_text("".join(json.dumps({"audio_filepath": n}) + "\n" for n in names))
        options |= {"read_sample_rate": False, "read_text": False, "read_idxs": True}
        return lambda: tuple(fn.readers.nemo_asr(manifest_filepaths=str(manifest), **options))
    if operator == "readers.video":
        options |= {"sequence_length": 6, "step": 1 << 30, "pad_sequences": True}  # one clip of each video
        return lambda: tuple(fn.readers.video(filenames=names, labels=[], **options))
    decode = {"decoders.audio": lambda x: fn.decoders.audio(x)[0], "decoders.video": fn.decoders.video}[operator]

    def define():
        data, number = fn.readers.file(files=names, labels=list(range(len(names))), **options)
        return decode(data), number

    return define


def read(operator: str, names: Sequence[str], folder: pathlib.Path) -> tuple[dict[int, np.ndarray], set[str]]:
    """The data of each file, by its number; and the files that can't be read.

    A reader replaces these, so all files are a batch. A decoder fails, so each file is a batch.
    """
    batch_size = len(names) if operator.startswith("readers") else 1
    define = definition(operator, names, folder / "manifest.json")
    pipe = pipeline_def(define, batch_size=batch_size, num_threads=2)()
    result, bad = {}, set()
    for i in range(len(names) // batch_size):
        try:
            data, numbers = pipe.run()
        except SampleError as e:
            if names[i] not in str(e):
                raise
            bad.add(names[i])
        else:
            result |= {int(np.asarray(n).item()): np.asarray(x) for x, n in zip(data, numbers, strict=True)}
    bad |= {b.file for b in pipe.bad_samples()}
    pipe.close()
    return result, bad


def main(kind: str, operator: str, first: int, last: int, batch: int = 25) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        good = KINDS[kind](folder)
        for stem, content in good.items():
            (folder / stem).write_bytes(content)
        whole = [str(folder / stem) for stem in good]
        expected, bad = read(operator, whole, folder)
        assert (len(expected), bad) == (len(whole), set())
        num_refused = 0
        for start in range(first, last, batch):
            numbers = range(start, min(start + batch, last))
            print(numbers.start, numbers.stop, flush=True)
            # Each mutant is followed by a good file, which replaces it if it can't be read.
            paths = []
            for number in numbers:
                stem = list(good)[number % len(good)]
                (folder / f"{number} {stem}").write_bytes(mutant(good[stem], number))
                paths += [str(folder / f"{number} {stem}"), whole[number % len(whole)]]
            data, bad = read(operator, paths, folder)
            for i, number in enumerate(numbers):
                np.testing.assert_array_equal(data[2 * i + 1], expected[number % len(whole)])
            assert bad <= set(paths[::2])
            num_refused += len(bad)
        print(json.dumps({"read": last - first - num_refused, "refused": num_refused}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
