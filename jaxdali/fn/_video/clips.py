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
from ..._core.errors import ArgumentError
from ..._core.system import available_cpus, show_name
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.directories import in_directories
from ..._data.files import Files, Path, as_list, matcher, read_lines
from ..._data.listed import Records
from ..._data.named_in_data import check_names, normal
from ..._data.storage import Store, is_url
from .files import OpenVideos, VideoIndex, make_index, package, read_frames, stamp_of
from .pixels import PixelForm, doubts_about
from .planes import PixelsOfPlanes, black, nbytes

_VIDEOS = matcher(
    [f"*.{x}" for x in "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts webm wmv".split()], case_sensitive=False
)
PadMode = Literal["none", "", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"]
_MOST_KEPT = 1 << 14  # indices that a process keeps


@dataclasses.dataclass(frozen=True)
class Listed:
    """An entry of a list of videos: where it is, its label, and the part that is read, in the units of the list; (0,
    0): all of it.
    """

    name: str
    label: int
    start: float = 0.0
    end: float = 0.0


def listed(
    operator: str,
    store: Store,
    filenames: Sequence[Path],
    labels: Sequence[int] | None,
    file_root: Path | None,
    file_list: Path | None,
) -> tuple[Path, list[Listed], list[str]]:
    """The directory, and the videos in it, that a reader's arguments name; and `Records.doubts`. RuntimeError if there
    are none.
    """
    doubts = list[str]()
    if file_root is not None:
        listing = in_directories(file_root, store, lambda name: True, is_sample=_VIDEOS)
        found = [Listed(os.fsdecode(name), k) for k, names in enumerate(listing.names) for name in names]
        root, found = file_root, sorted(found, key=lambda x: os.fsencode(x.name))
        doubts = listing.doubts(
            dict.fromkeys(
                ("folders", "system_files", "deeper"), "file_list=, or filenames= with labels=, names any files"
            )
        )
        if not found:
            raise RuntimeError(
                "; ".join([f"there are no files in the sub-directories of file_root {file_root}", *doubts])
            )
    elif file_list is not None:
        root, found = "", _in_list(operator, file_list, store)
    else:
        numbers = [0] * len(filenames) if labels is None else list(labels) or list(range(len(filenames)))
        root, found = "", [Listed(os.fspath(store.named(f)), n) for f, n in zip(filenames, numbers, strict=True)]
    return root, found, doubts


def _in_list(operator: str, path: Path, store: Store) -> list[Listed]:
    found = []
    for number, line in read_lines(path, store):
        fields = os.fsdecode(line).split()
        try:
            # DALI holds them in float32, which decides how they round.
            label, *part = int(fields[1]), *map(np.float32, fields[2:])
            good = label >= 0 and len(part) <= 2 and bool(np.isfinite(part).all())
        except (IndexError, ValueError):
            good, label, part = False, 0, []
        if not good:
            what = (
                "a file name without white space, a label (an integer >= 0), and optionally where to start and to end"
            )
            raise RuntimeError(f"{os.fspath(path)}, line {number}: expected {what}, got {os.fsdecode(line)!r}")
        if len(part) == 2 and part[0] == part[1]:
            warn(f"{operator}: {os.fspath(path)}, line {number}: it ends where it starts, so it has no frames")
            continue
        found.append(Listed(fields[0], label, *map(float, part)))
    names = [x.name for x in found]
    try:
        check_names(names, "", store.settings, absolute=True)
    except ValueError as e:
        raise RuntimeError(f"file_list {os.fspath(path)}: {e}") from None
    store.named_by_data(names)
    if not found:
        raise RuntimeError(f"file_list {os.fspath(path)} names no frames")
    return [dataclasses.replace(x, name=normal(x.name)) if ".." in x.name else x for x in found]


class Indices:
    """The indices that a process has made, by path and time of the last change; `Storage.cache_dir` keeps them for
    other processes.
    """

    def __init__(self):
        self._lock = threading.Lock()  # guards `_made`
        self._made: OrderedDict[Any, VideoIndex] = OrderedDict()

    def of(self, files: Files, i: int) -> VideoIndex:
        """The index of a file. Raises OSError or ValueError if it can't be read."""
        path = files.path(i)
        remote = is_url(path)
        key = (path, None) if remote else (os.path.abspath(path), *stamp_of(path))
        with self._lock:
            if key in self._made and not remote:
                self._made.move_to_end(key)
                return self._made[key]

        def make() -> bytes:
            return make_index(files.read(i) if remote else path).to_bytes()

        index = VideoIndex.from_bytes(files.store.kept(("index of a video", *key), make)) or make_index(
            files.read(i) if remote else path
        )
        with self._lock:
            self._made[key] = index
            while len(self._made) > _MOST_KEPT:
                self._made.popitem(last=False)
        return index

    def all(self, files: Files) -> list[VideoIndex | str]:
        """Those of all files; for one that can't be read, the reason."""

        def one(i: int) -> VideoIndex | str:
            try:
                return self.of(files, i)
            except OSError as e:
                return e.strerror or str(e)
            except ValueError as e:
                return str(e)

        if len(files) == 1:
            return [one(0)]
        with ThreadPoolExecutor(min(available_cpus(), len(files)), "jaxdali-index", show_name) as threads:
            return list(threads.map(one, range(len(files))))


INDICES = Indices()


def padded(frames: np.ndarray, begin: int, end: int, mode: str) -> np.ndarray:
    """Frames as DALI takes them from a part of a video: those outside of it are -1 (with "constant" and "none"), or
    others inside.
    """
    outside = (frames < begin) | (frames >= end)
    if not outside.any():
        return frames
    if mode in ("edge", "repeat"):
        return np.clip(frames, begin, end - 1)
    if mode in ("reflect_1001", "symmetric"):
        k = frames % (2 * end)
        other = np.minimum(k, 2 * end - 1 - k)
    elif mode in ("reflect_101", "reflect"):
        k = frames % max(2 * end - 2, 1)
        other = np.minimum(k, 2 * end - 2 - k) if end > 1 else np.zeros_like(frames)
    else:
        other = np.full_like(frames, -1)
    return np.where(outside, other, frames)


@dataclasses.dataclass(frozen=True)
class Clip:
    """Where a clip is: the entry of the list, its first frame, and the frames of the video among which it is, ``begin
    .. end - 1``.
    """

    entry: int
    first: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class ClipForm:
    """What a reader gives of each clip.

    Attributes:
      length, stride: number of frames, and the distance from one to the next.
      uniform: whether frames are spread evenly over the part of the video instead.
      pad_mode: what stands for frames that the video does not have; fill: with "constant", their values.
      pixels: what frames become.
      labels, frame_num, timestamps: which other outputs there are; `frame_num` is "none", "scalar" or "sequence".
      onward: whether clips are read in their order.
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
        return padded(clip.first + np.arange(self.length) * self.stride, clip.begin, clip.end, self.pad_mode)


class Clips(Records):
    """Clips of videos.

    Args:
      root, entries: the videos.
      form: what is read of a clip.
      clips_of: gives the clips of a video, as pairs (first frame, frames among which it is), for its index and its
        entry.
      apply_rotation: the argument, for `doubts`; None: it is not given.
    """

    def __init__(
        self,
        operator: str,
        root: Path,
        entries: Sequence[Listed],
        store: Store,
        form: ClipForm,
        clips_of: Callable[[VideoIndex, Listed, str], Sequence[tuple[int, int, int]]],
        apply_rotation: bool | None,
    ):
        package(operator)
        self._form, self._entries = form, entries
        self.stored = self._files = Files(root, [os.fsencode(e.name) for e in entries], store)
        unique = {self._files.name(i): i for i in range(len(self._files))}  # a video may come several times
        where = {name: k for k, name in enumerate(unique)}
        self._video = [where[self._files.name(i)] for i in range(len(entries))]
        self._videos = Files(root, [os.fsencode(name) for name in unique], store)
        found = INDICES.all(self._videos)
        self._stamps = [
            _stamp(self._videos.path(i)) if isinstance(x, VideoIndex) else None for i, x in enumerate(found)
        ]
        self._indices = [found[v] for v in self._video]
        clips: list[Clip] = []
        for k, entry in enumerate(entries):
            index = self._indices[k]
            if isinstance(index, str):
                clips.append(Clip(k, 0, 0, 0))  # reading it fails, and says why
            else:
                clips += [Clip(k, *x) for x in clips_of(index, entry, self._files.path(k))]
        good = [x for x in found if isinstance(x, VideoIndex)]
        if not good:
            raise RuntimeError(f"no video can be read. {self._videos.path(0)}: {found[0]}")
        if not clips:
            raise RuntimeError(f"no video is long enough for a clip; the first one has {len(good[0])} frames")
        self._table = np.array([dataclasses.astuple(c) for c in clips], np.int64)
        self.doubts = list(doubts_about(good, apply_rotation).values())
        sizes = {self._extents(x) for x in good}
        height, width = next(iter(sizes)) if len(sizes) == 1 else (None, None)
        shape = None if height is None or width is None else (form.length, height, width, 3)
        even = height is not None and width is not None and height % 2 == width % 2 == 0
        rounds = form.pixels.color_matrix == "bt601"  # samples of more than 8 bits, as DALI does, or else keeps them
        halved = all(x.halved and (rounds or x.bits == 8) for x in good)
        self._has_planes = even and halved and not form.pixels.ycbcr and not any(form.fill)
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
        self._open = OpenVideos()

    def __len__(self) -> int:
        return len(self._table)

    def compact(self) -> tuple[Spec, PixelsOfPlanes] | None:
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
        return super().facts() | {"frame": lambda i: int(self._table[i, 1])}

    def ahead(self, index: np.ndarray, now: int) -> None:
        entries = self._table[index, 0].tolist()
        videos = list(dict.fromkeys(self._video[e] for e in entries))
        closed = [v for v in videos if not self._open.has(v)]
        soon = {self._video[e] for e in entries[:now]}
        self._videos.ahead(np.array(closed, np.int64), sum(v in soon for v in closed))

    def close(self) -> None:
        self._open.close()
        super().close()

    def read(self, i: int) -> Sequence[np.ndarray]:
        wanted, others = self._plan(i)
        out = np.empty(self._shape(i), np.uint8)
        self._decode(int(self._table[i, 0]), [(out, wanted)])
        return [out, *others]

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

    def _shape(self, i: int) -> tuple[int, ...]:
        return (self._form.length, *self._extents(self._index(i)), 3)

    def _plan(self, i: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """The frames of a clip, and the outputs besides them."""
        index, form, clip = self._index(i), self._form, self._clip(i)
        frames = form.frames(clip)
        others = [np.array([self._entries[clip.entry].label], np.int32)] if form.labels else []
        if form.frame_num != "none":
            others.append((frames if form.frame_num == "sequence" else frames[:1]).astype(np.int32))
        return frames, others + ([index.seconds(frames)] if form.timestamps else [])

    def _decode(self, entry: int, clips: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Decodes clips of one video to their places: (pixels, frames) of each. Frames that several have are decoded
        once.
        """
        index = self._indices[entry]
        assert isinstance(index, VideoIndex)
        places: dict[int, list[np.ndarray]] = {}
        for out, frames in clips:
            for k, frame in enumerate(frames.tolist()):
                if frame < 0:
                    out[k] = self._form.fill if out.ndim > 2 else black(*self._extents(index))
                else:
                    places.setdefault(frame, []).append(out[k])
        if not places:
            return
        video = self._video[entry]
        path = self._files.path(entry)

        def source() -> Any:
            if is_url(path):
                return self._videos.read(video)
            if stamp_of(path) != self._stamps[video]:
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
                self._form.onward,
            )
        except OSError:
            raise
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None

    def _try(self, i: int, clips: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
        """As `_decode`, for the video of clip `i`. Returns why it failed; "": it did not."""
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
        """The clips of one batch; those that share frames, or begin with the same key frame, are decoded together."""
        samples = [(clips, i) for clips, index in parts for i in index.tolist()]
        specs = (ctx.spec, *parts[0][0].specs[1:])
        dense = None
        if specs[0].shape is not None:
            size = math.prod(specs[0].shape)
            dense = ctx.empty(ctx.B * size, np.uint8, 0).reshape(-1)[: len(samples) * size].reshape(-1, *specs[0].shape)
        pixels: list[np.ndarray] = [np.zeros((0,) * 4, np.uint8)] * len(samples)
        others: list[list[np.ndarray]] = [[]] * len(samples)
        jobs: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}
        failed: dict[int, str] = {}
        for k, (clips, i) in enumerate(samples):
            try:
                frames, others[k] = clips._plan(i)
                pixels[k] = np.empty(clips._shape(i), np.uint8) if dense is None else dense[k]
                jobs.setdefault((id(clips), int(clips._video[int(clips._table[i, 0])])), []).append((k, frames))
            except ValueError as e:
                failed[k] = str(e)

        def decode(job: Sequence[tuple[int, np.ndarray]]) -> dict[int, str]:
            """Why samples failed."""
            clips, i = samples[job[0][0]]
            why = clips._try(i, [(pixels[k], frames) for k, frames in job])
            if not why or len(job) == 1:
                return {job[0][0]: why} if why else {}
            # Some of them may be good.
            each = {k: clips._try(samples[k][1], [(pixels[k], frames)]) for k, frames in job}
            return {k: why for k, why in each.items() if why}

        runs = [run for job in jobs.values() for run in _together(samples[job[0][0]], job)]
        for found in (map if ctx.num_threads == 1 else threads.map)(decode, runs):
            failed |= found
        for k, why in failed.items():
            ctx.fail(k, Status.RECORD, why)
            others[k] = [np.zeros(s.shape or (0,), s.dtype) for s in specs[1:]]
            pixels[k][...] = 0 if pixels[k].ndim == 4 else black(*(parts[0][0].specs[0].shape or ())[1:3])
        first = pixels if dense is None else dense
        return (first, *(np.stack(column) for column in zip(*others, strict=True))) if len(specs) > 1 else (first,)


def _stamp(path: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        return None if is_url(path) else stamp_of(path)


def _together(sample: tuple[Clips, int], job: list[tuple[int, np.ndarray]]) -> list[list[tuple[int, np.ndarray]]]:
    """Clips of one video in runs that are decoded together: each begins before the one before it has ended, or at the
    same key frame.
    """
    clips, i = sample
    index = clips._index(i)
    order = sorted(job, key=lambda x: int(x[1].max()))
    order.sort(key=lambda x: int(np.where(x[1] < 0, np.iinfo(np.int64).max, x[1]).min()))
    runs: list[list[tuple[int, np.ndarray]]] = []
    reach = -1
    for k, frames in order:
        inside = frames[frames >= 0]
        low, high = (int(inside.min()), int(inside.max())) if len(inside) else (0, 0)
        begin = 0 if index.counted else int(index.keys[index.begins[low]])
        if runs and begin <= reach:
            runs[-1].append((k, frames))
        else:
            runs.append([(k, frames)])
            reach = -1
        reach = max(reach, len(index) if index.counted else int(index.positions[high]))
    return runs


def which_videos(filenames: Any, file_root: Any, file_list: Any, labels: Any) -> str:
    """Which argument names the videos. Raises ArgumentError if it isn't one alone, or `labels` don't fit."""
    given = {"filenames": filenames or None, "file_root": file_root or None, "file_list": file_list or None}
    which = [name for name, value in given.items() if value is not None]
    if len(which) != 1:
        raise ArgumentError(
            f"exactly one of filenames, file_root and file_list must be given, got {' and '.join(which) or 'none'}"
        )
    if labels is not None and which[0] != "filenames":
        raise ArgumentError(f"labels belong to filenames, got {which[0]}")
    if labels is not None and as_list(labels) and len(as_list(labels)) != len(as_list(filenames)):
        raise ArgumentError(
            f"labels must have a number for each of the {len(as_list(filenames))} filenames, got {len(as_list(labels))}"
        )
    return which[0]
