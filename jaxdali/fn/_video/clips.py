"""Clips of videos as a list of records, which the readers of videos share."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from ..._core.building import warn
from ..._core.context import HostContext
from ..._core.errors import ArgumentError, quoted
from ..._core.system import available_cpus, thread_pool
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.directories import in_directories
from ..._data.files import Files, Path, as_list, matcher, read_lines
from ..._data.named_in_data import check_names, normal
from ..._data.records import Records
from ..._data.storage import Store
from ..._data.urls import is_url
from .indexing import make_index
from .open_videos import OpenVideos, read_frames
from .pixels import PixelForm, doubts_about
from .planes import PixelsOfPlanes, black, nbytes
from .video_file import package
from .video_index import VideoIndex

_VIDEOS = matcher(
    [f"*.{x}" for x in "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts webm wmv".split()], case_sensitive=False
)
PadMode = Literal["none", "", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"]
_MAX_INDICES = 1 << 14  # that a process keeps


@dataclasses.dataclass(frozen=True)
class VideoEntry:
    """An entry of a list of videos.

    Attributes:
      name: the path of the video.
      label: its label.
      start, end: the part of the video that is read, in the units of the list; both 0: all of it.
    """

    name: str
    label: int
    start: float = 0.0
    end: float = 0.0


def list_videos(
    operator: str,
    store: Store,
    filenames: Sequence[Path],
    labels: Sequence[int] | None,
    file_root: Path | None,
    file_list: Path | None,
) -> tuple[Path, list[VideoEntry], list[str]]:
    """Lists the videos that a reader's arguments name.

    Args:
      operator: the reader's name, for messages.
      store: reads directories and lists. The others are the reader's arguments, of which one names the videos.

    Returns:
      The root directory, the entries with names relative to it, and texts for `Records.doubts`.

    Raises:
      RuntimeError: there are no videos.
    """
    doubts = list[str]()
    if file_root is not None:
        # All files are listed, so none is left out because of its name.
        listing = in_directories(file_root, store, lambda name: True, is_sample=_VIDEOS)
        entries = [VideoEntry(os.fsdecode(name), label=k) for k, names in enumerate(listing.names) for name in names]
        root, entries = file_root, sorted(entries, key=lambda x: os.fsencode(x.name))
        doubts = listing.doubts(
            dict.fromkeys(
                ("folders", "system_files", "deeper"), "file_list=, or filenames= with labels=, names any files"
            )
        )
        if not entries:
            raise RuntimeError(
                "; ".join([f"there are no files in the sub-directories of file_root {file_root}", *doubts])
            )
    elif file_list is not None:
        root, entries = "", _read_file_list(operator, file_list, store)
    else:
        # An empty list of labels stands for 0, 1, 2, ...; without labels they are not used.
        numbers = [0] * len(filenames) if labels is None else list(labels) or list(range(len(filenames)))
        root, entries = "", [VideoEntry(os.fspath(store.named(f)), n) for f, n in zip(filenames, numbers, strict=True)]
    return root, entries, doubts


def _read_file_list(operator: str, path: Path, store: Store) -> list[VideoEntry]:
    """Parses the lines ``name label [start [end]]`` of a `file_list`.

    Raises:
      RuntimeError: a line has another form, or names a file that data may not name.
    """
    entries = []
    for number, line in read_lines(path, store):
        fields = os.fsdecode(line).split()
        try:
            # DALI holds start and end in float32, which decides how they round.
            label, *bounds = int(fields[1]), *map(np.float32, fields[2:])
            is_valid = label >= 0 and len(bounds) <= 2 and bool(np.isfinite(bounds).all())
        except (IndexError, ValueError):
            is_valid, label, bounds = False, 0, []
        if not is_valid:
            expected = (
                "a file name without white space, a label (an integer >= 0), and optionally where to start and to end"
            )
            raise RuntimeError(
                f"{os.fspath(path)}, line {number}: expected {expected}, got {quoted(os.fsdecode(line))}"
            )
        if len(bounds) == 2 and bounds[0] == bounds[1]:
            warn(f"{operator}: {os.fspath(path)}, line {number}: it ends where it starts, so it has no frames")
            continue
        entries.append(VideoEntry(fields[0], label, *map(float, bounds)))
    names = [x.name for x in entries]
    try:
        check_names(names, "", store.settings, absolute=True)
    except ValueError as e:
        raise RuntimeError(f"file_list {os.fspath(path)}: {e}") from None
    store.named_by_data(names)
    if not entries:
        raise RuntimeError(f"file_list {os.fspath(path)} names no frames")
    return [dataclasses.replace(x, name=normal(x.name)) if ".." in x.name else x for x in entries]


class Indices:
    """Video indices that this process has made, by path and time of the last change.

    `Storage.cache_dir` keeps them for other processes.
    """

    def __init__(self):
        self._lock = threading.Lock()  # guards `_index_by_file`
        self._index_by_file: OrderedDict[Any, VideoIndex] = OrderedDict()

    def get(self, files: Files, i: int) -> VideoIndex:
        """The index of a file. Raises OSError or ValueError if the file can't be read."""
        path = files.path(i)
        is_remote = is_url(path)
        key = (path, None) if is_remote else (os.path.abspath(path), *file_stamp(path))
        with self._lock:
            # A file at a URL has no time stamp here; the store's own key tells whether it has changed.
            if key in self._index_by_file and not is_remote:
                self._index_by_file.move_to_end(key)
                return self._index_by_file[key]

        def make() -> bytes:
            return make_index(files.read(i) if is_remote else path).to_bytes()

        # The cache may hold an index that another version of this package wrote.
        content = files.store.kept(key[0], ("index of a video", *key[1:]), make)
        index = VideoIndex.from_bytes(content) or make_index(files.read(i) if is_remote else path)
        with self._lock:
            self._index_by_file[key] = index
            while len(self._index_by_file) > _MAX_INDICES:
                self._index_by_file.popitem(last=False)
        return index

    def get_all(self, files: Files) -> list[VideoIndex | str]:
        """The indices of all files, made in parallel; for a file that can't be read, the reason."""

        def index_or_reason(i: int) -> VideoIndex | str:
            """The index of file `i`, or the reason why there is none."""
            try:
                return self.get(files, i)
            except OSError as e:
                return e.strerror or str(e)
            except ValueError as e:
                return str(e)

        if len(files) == 1:
            return [index_or_reason(0)]
        with thread_pool(min(available_cpus(), len(files)), "jaxdali-index") as threads:
            return list(threads.map(index_or_reason, range(len(files))))


INDICES = Indices()


def pad_frames(frames: np.ndarray, begin: int, end: int, mode: str) -> np.ndarray:
    """Replaces numbers of frames outside of ``begin .. end - 1``, the part of a video that is read, as DALI does.

    They become -1 with "constant" and "none", and numbers of other frames with the other modes.
    """
    is_outside = (frames < begin) | (frames >= end)
    if not is_outside.any():
        return frames
    if mode in ("edge", "repeat"):
        return np.clip(frames, begin, end - 1)
    # Reflection ignores `begin`, as in DALI: its period is 2 * end (the last frame comes twice) or 2 * end - 2.
    if mode in ("reflect_1001", "symmetric"):
        k = frames % (2 * end)
        replacement = np.minimum(k, 2 * end - 1 - k)
    elif mode in ("reflect_101", "reflect"):
        k = frames % max(2 * end - 2, 1)
        replacement = np.minimum(k, 2 * end - 2 - k) if end > 1 else np.zeros_like(frames)
    else:
        replacement = np.full_like(frames, -1)
    return np.where(is_outside, replacement, frames)


@dataclasses.dataclass(frozen=True)
class Clip:
    """The place of a clip.

    Attributes:
      entry: the number of the video's entry in the list.
      first: the number of the clip's first frame.
      begin, end: the part of the video that is read, frames ``begin .. end - 1``.
    """

    entry: int
    first: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class ClipForm:
    """The outputs of a reader for each clip.

    Attributes:
      length, stride: number of frames, and the distance from one to the next.
      uniform: whether frames are spread evenly over the part of the video instead.
      pad_mode: the replacement of frames that the video does not have; fill: with "constant", their values.
      pixels: the form of the pixels.
      labels, timestamps: whether there are outputs with the label and with the times of the frames.
      frame_num: "none", "scalar" or "sequence": the numbers of frames in a further output.
      onward: whether clips are read in their order, so that the frames after a clip are likely to be read next.

    Checkpoints have a digest of all fields and their names.
    """

    length: int
    stride: int
    uniform: bool
    pad_mode: str
    fill: tuple[int, ...]
    pixels: PixelForm
    labels: bool
    frame_num: str
    timestamps: bool
    onward: bool

    @property
    def num_outputs(self) -> int:
        return 1 + self.labels + (self.frame_num != "none") + self.timestamps

    def frames(self, clip: Clip) -> np.ndarray:
        """``i64[length]``: the frames of a clip; -1 for those that are padding."""
        if self.uniform:
            step = (clip.end - 1 - clip.begin) / max(self.length - 1, 1)
            return np.floor(clip.begin + np.arange(self.length) * step + 0.5).astype(np.int64)
        return pad_frames(clip.first + np.arange(self.length) * self.stride, clip.begin, clip.end, self.pad_mode)


class Clips(Records):
    """Clips of videos.

    Args:
      operator: the reader's name, for messages.
      root, entries: the videos; the names of the entries are relative to `root`.
      store: reads the videos.
      form: the outputs for each clip.
      clips_of: returns the clips of a video, as triples (first, begin, end) of `Clip`, for its index, its entry and its
        path.
      apply_rotation: the operator's argument, for `doubts`; None: it is not given.

    A row of `_table` is a clip: the fields of `Clip`, of which the first two are the entry's number and the first
    frame. `_video` has the number of each entry's video in `_videos`.
    """

    def __init__(
        self,
        operator: str,
        root: Path,
        entries: Sequence[VideoEntry],
        store: Store,
        form: ClipForm,
        clips_of: Callable[[VideoIndex, VideoEntry, str], Sequence[tuple[int, int, int]]],
        apply_rotation: bool | None,
    ):
        """Indexes the videos, and lists their clips.

        The attributes of `Records` are set here: `specs` of the outputs, `stored`, the files of the entries, `digest`,
        by which checkpoints recognize the list, and `doubts`, warnings.
        """
        package(operator)  # raises ImportError if PyAV is missing
        self._form, self._entries = form, entries
        self.stored = self._files = Files(root, [os.fsencode(e.name) for e in entries], store)
        # An entry is a line of the list; several entries may be parts of one video.
        unique = {self._files.name(i): i for i in range(len(self._files))}
        video_of_name = {name: k for k, name in enumerate(unique)}
        self._video = [video_of_name[self._files.name(i)] for i in range(len(entries))]
        self._videos = Files(root, [os.fsencode(name) for name in unique], store)
        # A video whose clips are too large is one that can't be read.
        indices = [x if isinstance(x, str) else self._refusal(x) or x for x in INDICES.get_all(self._videos)]
        # Of each video, to notice local files that change; None for videos at URLs, and for those that can't be read.
        self._stamps = [
            _local_stamp(self._videos.path(i)) if isinstance(x, VideoIndex) else None for i, x in enumerate(indices)
        ]
        self._indices = [indices[v] for v in self._video]  # of each entry; a str is the reason why there is none
        clips: list[Clip] = []
        for k, entry in enumerate(entries):
            index = self._indices[k]
            if isinstance(index, str):
                clips.append(Clip(k, 0, 0, 0))  # reading it fails, and says why
            else:
                clips += [Clip(k, *x) for x in clips_of(index, entry, self._files.path(k))]
        readable = [x for x in indices if isinstance(x, VideoIndex)]
        if not readable:
            path = self._videos.path(0)
            advice = (
                f"; filenames=sorted(glob.glob({os.path.join(path, '*')!r})) are its files"
                if os.path.isdir(path)
                else ""
            )
            raise RuntimeError(f"no video can be read. {path}: {indices[0]}{advice}")
        if not clips:
            raise RuntimeError(f"no video is long enough for a clip; the first one has {len(readable[0])} frames")
        self._table = np.array([dataclasses.astuple(c) for c in clips], np.int64)
        self.doubts = list(doubts_about(readable, apply_rotation).values())
        # Programs are compiled for the extents if they are those of all videos.
        sizes = {self._extents(x) for x in readable}
        height, width = next(iter(sizes)) if len(sizes) == 1 else (None, None)
        shape = None if height is None or width is None else (form.length, height, width, 3)
        has_even_size = height is not None and width is not None and height % 2 == width % 2 == 0
        # As DALI, BT.601 rounds samples of more than 8 bits first; the stream's matrix keeps all their bits.
        rounds_to_8_bits = form.pixels.color_matrix == "bt601"
        has_half_chroma = all(x.halved and (rounds_to_8_bits or x.bits == 8) for x in readable)
        # Whether a program can make the pixels from planes, see `compact`. Of planes, missing frames are black.
        self._has_planes = has_even_size and has_half_chroma and not form.pixels.ycbcr and not any(form.fill)
        specs = [Spec(np.dtype(np.uint8), 4, shape, "FHWC", None if shape else (form.length, None, None, 3))]
        specs += [Spec(np.dtype(np.int32), 1, (1,))] if form.labels else []
        specs += (
            [Spec(np.dtype(np.int32), 1, (1 if form.frame_num == "scalar" else form.length,))]
            if form.frame_num != "none"
            else []
        )
        specs += [Spec(np.dtype(np.float64), 1, (form.length,))] if form.timestamps else []
        self.specs = tuple(specs)
        digest = self._files.digest.copy()
        digest.update(self._table.tobytes() + repr((form, [e.label for e in entries])).encode())
        self.digest = digest.hexdigest()[:16]
        self._open = OpenVideos()  # decoders by the number of the video in `_videos`

    def __len__(self) -> int:
        return len(self._table)

    def compact(self) -> tuple[Spec, PixelsOfPlanes] | None:
        """See `Records.compact`. The compact form of a clip are the planes of its frames, ``u8[F, nbytes]``."""
        frames = self.specs[0]
        if not self._has_planes or frames.shape is None:
            return None
        length, height, width, _ = frames.shape
        return Spec(frames.dtype, 2, (length, nbytes(height, width))), PixelsOfPlanes(height=height, width=width)

    def name(self, i: int) -> str:
        return self._files.name(int(self._table[i, 0]))

    def full_name(self, i: int) -> str:
        return self._files.path(int(self._table[i, 0]))

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. "frame" is the number of a clip's first frame in its video."""
        return super().facts() | {"frame": lambda i: int(self._table[i, 1])}

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. Clips become their videos, without those that are open."""
        entries = self._table[index, 0].tolist()
        videos = list(dict.fromkeys(self._video[e] for e in entries))
        to_open = [v for v in videos if not self._open.has(v)]
        needed_now = {self._video[e] for e in entries[:now]}
        self._videos.ahead(np.array(to_open, np.int64), sum(v in needed_now for v in to_open))

    def close(self) -> None:
        self._open.close()
        super().close()

    def read(self, i: int) -> Sequence[np.ndarray]:
        """See `Records.read`: the pixels of clip `i`, then the outputs that the form asks for."""
        frames, extras = self._plan(i)
        out = np.empty(self._shape(i), np.uint8)
        self._decode(int(self._table[i, 0]), [(out, frames)])
        return [out, *extras]

    def _clip(self, i: int) -> Clip:
        return Clip(*self._table[i].tolist())

    def _index(self, i: int) -> VideoIndex:
        index = self._indices[int(self._table[i, 0])]
        if isinstance(index, str):
            raise ValueError(f"{self.full_name(i)}: {index}")
        return index

    def _extents(self, index: VideoIndex) -> tuple[int, int]:
        """Height and width of the frames that are returned."""
        return index.extents(self._form.pixels.upright)

    def _refusal(self, index: VideoIndex) -> str:
        """The reason why the clips of a video are not read; "" if they are."""
        (height, width), length = self._extents(index), self._form.length
        reason = self._files.store.settings.too_large(length * height * width * 3)
        return f"a clip has {length} frames of {height}x{width} pixels: {reason}" if reason else ""

    def _shape(self, i: int) -> tuple[int, ...]:
        return (self._form.length, *self._extents(self._index(i)), 3)

    def _plan(self, i: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """The numbers of a clip's frames, and the outputs other than pixels."""
        index, form, clip = self._index(i), self._form, self._clip(i)
        frames = form.frames(clip)
        extras = [np.array([self._entries[clip.entry].label], np.int32)] if form.labels else []
        if form.frame_num != "none":
            extras.append((frames if form.frame_num == "sequence" else frames[:1]).astype(np.int32))
        return frames, extras + ([index.seconds(frames)] if form.timestamps else [])

    def _decode(self, entry: int, clips: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Decodes clips of one video into arrays.

        Args:
          clips: (pixels, frames) of each clip: the output, and the numbers of its frames. A frame that several clips
            have is decoded once.
        """
        index = self._indices[entry]
        assert isinstance(index, VideoIndex)
        places: dict[int, list[np.ndarray]] = {}
        for out, frames in clips:
            for k, frame in enumerate(frames.tolist()):
                if frame < 0:
                    # A clip of planes has two axes, see `compact`; their fill value is black.
                    out[k] = self._form.fill if out.ndim > 2 else black(*self._extents(index))
                else:
                    places.setdefault(frame, []).append(out[k])
        if not places:
            return
        video = self._video[entry]
        path = self._files.path(entry)

        def source() -> Any:
            """The path of the video, or its contents if it was fetched."""
            if is_url(path):
                return self._videos.read(video)
            if file_stamp(path) != self._stamps[video]:
                raise ValueError("the file has changed since the pipeline was built")
            return path

        try:
            read_frames(
                self._open,
                video,
                source,
                index,
                sorted(places),
                places.__getitem__,
                self._form.pixels,
                onward=self._form.onward,
            )
        except OSError:
            raise
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None

    def _try_decode(self, i: int, clips: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
        """As `_decode`, for the video of clip `i`. Returns the reason if it fails, otherwise ""."""
        try:
            self._decode(int(self._table[i, 0]), clips)
        except OSError as e:
            return f"{e.filename or self.name(i)}: {e.strerror or e}"
        except ValueError as e:
            return str(e)
        return ""

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[Clips, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """Reads the clips of one batch. Clips that share frames or their first key frame are decoded together."""
        samples = [(clips, i) for clips, index in parts for i in index.tolist()]
        # All lists have the specs of the first one, but `ctx.spec` may be that of planes, see `compact`.
        specs = (ctx.spec, *parts[0][0].specs[1:])
        # `dense` has all clips if they have one size: the first bytes of a pooled buffer. `pixels` are its parts, or
        # arrays of their own; `extras` are the outputs other than pixels. All are by sample, as `reasons` of failures.
        dense = None
        if specs[0].shape is not None:
            size = math.prod(specs[0].shape)
            dense = ctx.empty(ctx.B * size, np.uint8, 0).reshape(-1)[: len(samples) * size].reshape(-1, *specs[0].shape)
        pixels: list[np.ndarray] = [np.zeros((0,) * 4, np.uint8)] * len(samples)
        extras: list[list[np.ndarray]] = [[]] * len(samples)
        # By list and video: (sample, frames) of the video's clips.
        jobs: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}
        reasons: dict[int, str] = {}
        for k, (clips, i) in enumerate(samples):
            try:
                frames, extras[k] = clips._plan(i)
                pixels[k] = np.empty(clips._shape(i), np.uint8) if dense is None else dense[k]
                jobs.setdefault((id(clips), int(clips._video[int(clips._table[i, 0])])), []).append((k, frames))
            except ValueError as e:
                reasons[k] = str(e)

        def decode(run: Sequence[tuple[int, np.ndarray]]) -> dict[int, str]:
            """Decodes a run, (sample, frames) of each clip. Returns the reasons of the samples that failed."""
            first_sample, _ = run[0]
            clips, i = samples[first_sample]
            reason = clips._try_decode(i, [(pixels[k], frames) for k, frames in run])
            if not reason or len(run) == 1:
                return {first_sample: reason} if reason else {}
            # One bad frame fails the whole run; alone, some of the clips may be good. `samples[k][1]` is the number of
            # sample k's clip in its list.
            run_reasons = {k: clips._try_decode(samples[k][1], [(pixels[k], frames)]) for k, frames in run}
            return {k: reason for k, reason in run_reasons.items() if reason}

        # `job[0][0]` is the job's first sample.
        runs = [run for job in jobs.values() for run in _runs_of_shared_packets(samples[job[0][0]], job)]
        for failures in (map if ctx.num_threads == 1 else threads.map)(decode, runs):
            reasons |= failures
        for k, reason in reasons.items():
            ctx.fail(k, Status.RECORD, reason)
            extras[k] = [np.zeros(s.shape or (0,), s.dtype) for s in specs[1:]]
            # Black pixels, or the planes of black frames, whose height and width are those of the clips' spec.
            pixels[k][...] = 0 if pixels[k].ndim == 4 else black(*(parts[0][0].specs[0].shape or ())[1:3])
        first = pixels if dense is None else dense
        return (first, *(np.stack(column) for column in zip(*extras, strict=True))) if len(specs) > 1 else (first,)


def file_stamp(path: str) -> tuple[int, int]:
    """The size of a local file and the time of its last change, in ns: they differ once the file has changed."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _local_stamp(path: str) -> tuple[int, int] | None:
    """The `file_stamp` of a local file; None for a URL, and for a file that does not exist."""
    with contextlib.suppress(OSError):
        return None if is_url(path) else file_stamp(path)


def _runs_of_shared_packets(
    sample: tuple[Clips, int], job: list[tuple[int, np.ndarray]]
) -> list[list[tuple[int, np.ndarray]]]:
    """Groups clips of one video into runs that are decoded together.

    A clip joins a run if its key frame comes before the end of the run's last clip: the packets that it needs are then
    decoded anyway.

    Args:
      sample: the first clip: all clips of the files, and the clip's number among them.
      job: (sample, frames) of each clip.
    """
    clips, i = sample
    index = clips._index(i)
    # By the first frame, then by the last; -1 is padding, which has no place in the order. Sorting is stable. `x[1]` are
    # the frames of a clip.
    by_first_frame = sorted(job, key=lambda x: int(x[1].max()))
    by_first_frame.sort(key=lambda x: int(np.where(x[1] < 0, np.iinfo(np.int64).max, x[1]).min()))
    runs: list[list[tuple[int, np.ndarray]]] = []
    run_end = -1
    for k, frames in by_first_frame:
        present = frames[frames >= 0]
        lowest, highest = (int(present.min()), int(present.max())) if len(present) else (0, 0)
        # Videos whose frames are counted are decoded from their first packet on, so that all clips are one run.
        key_packet = 0 if index.is_counted else int(index.keys[index.key_of_frame[lowest]])
        if runs and key_packet <= run_end:
            runs[-1].append((k, frames))
        else:
            runs.append([(k, frames)])
            run_end = -1
        run_end = max(run_end, len(index) if index.is_counted else int(index.packet_of_frame[highest]))
    return runs


def videos_argument(filenames: Any, file_root: Any, file_list: Any, labels: Any) -> str:
    """The name of the argument that names the videos.

    Raises:
      ArgumentError: none of the three is given, or several, or `labels` don't fit.
    """
    values = {"filenames": filenames or None, "file_root": file_root or None, "file_list": file_list or None}
    names = [name for name, value in values.items() if value is not None]
    if len(names) != 1:
        raise ArgumentError(
            f"exactly one of filenames, file_root and file_list must be given, got {' and '.join(names) or 'none'}"
        )
    if labels is not None and names[0] != "filenames":
        raise ArgumentError(f"labels belong to filenames, got {names[0]}")
    if labels is not None and as_list(labels) and len(as_list(labels)) != len(as_list(filenames)):
        raise ArgumentError(
            f"labels must have a number for each of the {len(as_list(filenames))} filenames, got {len(as_list(labels))}"
        )
    return names[0]
