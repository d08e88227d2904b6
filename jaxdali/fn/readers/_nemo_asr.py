"""readers.nemo_asr: speech and its transcripts, as NeMo's manifests list them."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from ... import types
from ..._core.declaration import DType, OneOf, Range
from ..._core.errors import cut, unreadable
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._data.files import Files, Paths, as_list, utf8
from ..._data.named_in_data import check_names, normal
from ..._data.records import Records
from ..._data.storage import Storage, Store
from .._audio import files
from ._reader import Reader, StoredArguments

_DTYPES = (np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.int32))


@dataclasses.dataclass(frozen=True)
class ManifestEntry:
    """An entry of a manifest. Duration and offset are in seconds; a negative duration means the whole file."""

    path: str
    duration: float
    offset: float
    text: bytes


def read_manifest(path: str, content: bytes) -> list[tuple[ManifestEntry, Mapping[str, Any]]]:
    """Parses a manifest, which has JSON objects one after another. Returns each entry with its whole object.

    Raises:
      RuntimeError: the manifest has another form.
    """
    entries, position = [], 0
    try:
        text = utf8(content).decode().rstrip()
        decoder = json.JSONDecoder()
        while position < len(text):
            entry, position = decoder.raw_decode(text, re.compile(r"\s*").match(text, position).end())  # pyright: ignore[reportOptionalMemberAccess]
            offset, duration = float(entry.get("offset", 0)), float(entry.get("duration", -1))
            os.fspath(entry["audio_filepath"])  # raises an error if it is no path
            if not math.isfinite(offset + duration):
                raise ValueError(f"offset {offset} and duration {duration} must be finite")
            entries.append(
                (ManifestEntry(entry["audio_filepath"], duration, offset, entry.get("text", "").encode()), entry)
            )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
        raise RuntimeError(
            f"{path}: entry {len(entries)} does not have the form of a NeMo manifest: {type(e).__name__}: {cut(str(e))}"
        ) from e
    return entries


class _Speech(Records):
    """The entries of manifests.

    Args:
      objects: the whole object of each entry, for the metadata "json".
    """

    def __init__(
        self, op: ReadNemoASR, entries: Sequence[ManifestEntry], objects: Sequence[Mapping[str, Any]], store: Store
    ):
        """Attributes of `Records` are set here: `specs` of the outputs, `stored`, the audio files, and `digest`, by which
        checkpoints recognize the list.
        """
        self._op, self._entries, self._objects = op, entries, objects
        self.stored = self._files = Files("", [os.fsencode(e.path) for e in entries], store)
        audio = Spec(op.dtype, 1 if op.downmix else 2, None)
        optional_specs = [
            (op.read_sample_rate, Spec(np.dtype(np.float32), 0, ())),
            (op.read_text, Spec(np.dtype(np.uint8), 1, None)),
        ]
        self.specs = (
            audio,
            *(s for is_read, s in [*optional_specs, (op.read_idxs, Spec(np.dtype(np.int64), 1, (1,)))] if is_read),
        )
        digest = self._files.digest.copy()
        digest.update(repr([dataclasses.astuple(e) for e in entries]).encode())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._entries)

    def name(self, i: int) -> str:
        return self._files.name(i)

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. `_objects` are empty unless "json" is asked for, see `ReadNemoASR.open`."""
        return super().facts() | {
            "text": lambda i: self._entries[i].text.decode(),
            "duration": lambda i: self._entries[i].duration,
            "offset": lambda i: self._entries[i].offset,
            "json": lambda i: copy.deepcopy(self._objects[i]),  # the user may change it
        }

    def read(self, i: int) -> Sequence[np.ndarray]:
        """See `Records.read`: the audio of entry `i`, then the rate, the text and the number that are asked for."""
        op, entry = self._op, self._entries[i]
        audio, rate = self._audio(self._files.read(i), i)
        outputs = [audio]
        outputs += [np.array(rate, np.float32)] if op.read_sample_rate else []
        outputs += [np.frombuffer(entry.text, np.uint8)] if op.read_text else []
        return outputs + ([np.array([i])] if op.read_idxs else [])

    def _audio(self, content: bytes, i: int) -> tuple[np.ndarray, int]:
        """The signal of entry `i` and its rate, from the contents of its file."""
        op, entry = self._op, self._entries[i]
        try:
            return files.read(
                content,
                op.storage or Storage(),
                dtype=op.dtype,
                downmix=op.downmix,
                to=op.sample_rate,
                quality=op.quality,
                antialias=op.antialias,
                offset=entry.offset,
                duration=entry.duration,
            )
        except ValueError as e:
            raise ValueError(f"{self._files.path(i)}: {e}") from e


class ReadNemoASR(Reader):
    """`readers.nemo_asr`; the fields are its arguments."""

    name: ClassVar[str] = "readers.nemo_asr"

    manifest_filepaths: Paths
    read_sample_rate: bool
    read_text: bool
    read_idxs: bool
    sample_rate: float
    quality: float
    antialias: bool
    downmix: bool
    dtype: np.dtype
    min_duration: float
    max_duration: float

    @property
    def num_arrays(self) -> int:
        return 1 + self.read_sample_rate + self.read_text + self.read_idxs

    def open(self) -> _Speech:
        """See `Reader.open`. Reads the manifests, and leaves out entries by their duration."""
        files.soundfile("readers.nemo_asr")
        store, entries = Store(self.storage), list[tuple[ManifestEntry, Mapping[str, Any]]]()
        for path in as_list(self.manifest_filepaths):
            try:
                pairs = read_manifest(os.fspath(path), store.read(store.named(path)))
                check_names([e.path for e, _ in pairs], "", store.settings, absolute=True)
            except OSError as e:
                raise RuntimeError(f"can't read the manifest {unreadable(path, e)}") from e.__cause__
            except ValueError as e:
                raise RuntimeError(f"{os.fspath(path)}: {e}") from None
            store.named_by_data(e.path for e, _ in pairs)
            # The whole objects take memory, and are only needed for this metadata.
            keeps_objects = "json" in self.metadata_names
            entries += [
                (dataclasses.replace(e, path=normal(e.path)) if ".." in e.path else e, x if keeps_objects else {})
                for e, x in pairs
            ]
        # A limit of 0 keeps all. Entries that give no duration have a negative one.
        selected = [(e, x) for e, x in entries if e.duration >= self.min_duration or self.min_duration <= 0]
        selected = [(e, x) for e, x in selected if e.duration <= self.max_duration or self.max_duration <= 0]
        if not selected:
            raise RuntimeError(
                f"no entry of {', '.join(map(os.fspath, as_list(self.manifest_filepaths)))} is left to read"
            )
        return _Speech(self, [e for e, _ in selected], [x for _, x in selected], store)


class NemoASRArguments(StoredArguments, total=False):
    """DALI's hints to `nemo_asr`, and an argument that DALI has dropped."""

    dont_use_mmap: bool | None
    normalize_text: bool | None


@operator_function(ReadNemoASR)
def nemo_asr(
    *,
    manifest_filepaths: Paths,
    read_sample_rate: bool = True,
    read_text: bool = True,
    read_idxs: bool = False,
    sample_rate: float = -1.0,
    quality: Annotated[float, Range(0, 100)] = 50.0,
    antialias: bool = False,
    downmix: bool = True,
    dtype: Annotated[DType, OneOf(*_DTYPES)] = types.FLOAT,
    min_duration: float = 0.0,
    max_duration: float = 0.0,
    **order: Unpack[NemoASRArguments],
) -> DataNode | list[DataNode]:
    """Reads speech and its transcripts, as NeMo's manifests list them.

    Audio files are decoded by libsndfile (package soundfile).

    A manifest has JSON objects one after another, with ``audio_filepath`` and optionally ``text``, ``offset`` and
    ``duration`` (in seconds).

    Args:
      manifest_filepaths: paths of the manifests, which are read one after another.
      read_sample_rate: whether to also return the file's sampling rate.
      read_text: whether to also return the transcript.
      read_idxs: whether to also return the number of the entry, among those that are not left out.
      sample_rate: the rate to resample to, in Hz. Default: the file's own.
      quality: quality of resampling, 0 to 100, which means 3 to 64 lobes of a windowed sinc.
      antialias: whether resampling also removes the frequencies that the new rate can't hold. Beyond DALI, see
        `audio_resample`.
      downmix: whether to return the mean of the channels.
      dtype: FLOAT (full scale is 1), INT16 or INT32. Floats of a file are scaled to the whole range of integers, and
        saturate.
      min_duration: leave out entries that are shorter than this, in seconds, or that give no duration. 0: keep all.
      max_duration: leave out entries that are longer than this. 0: keep all.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename"; "text": the transcript, a `str`; "duration" and "offset", in
        seconds; "json": the whole entry of the manifest, a dict; "index": the number in the list; "source_info".

    Returns:
      Audio ``[samples]``, without `downmix` ``[samples, channels]``; with `read_sample_rate` the rate of the file,
      ``float32``, a scalar; with `read_text` the transcript in UTF-8, ``uint8[bytes]``; with `read_idxs` ``int64[1]``.
      Their source_info is the audio file's path.

    Raises:
      ImportError: when the pipeline is built, soundfile (``pip install "jaxdali[audio]"``) is missing.
      RuntimeError: when the pipeline is built, a manifest can't be read or has no entry left. An audio file that can't
        be decoded, or whose signal, before or after resampling, is larger than `storage` allows (1 GiB unless it says
        otherwise), fails when its batch runs.

    Differs from DALI: `random_shuffle` gives another order; see `decoders.audio` for integers of files of floats.

    Example:
      >>> audio, rate, text = fn.readers.nemo_asr(manifest_filepaths="train.json", sample_rate=16000, min_duration=0.5)
    """
    ...
