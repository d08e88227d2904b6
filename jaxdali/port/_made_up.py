"""Makes data and arguments for trials of pipelines."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import pathlib
import re
import struct
import tarfile
import wave
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from .. import types

HEIGHT, WIDTH = 480, 640
_IMAGES = 16
# Kinds of arrays to try if nothing determines the kind, see `array`.
_VARIANTS = ("image", "volumes", "labels", "volume", "plane", "vector", "number")


def picture(seed: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """An image with smooth colours, ``u8[height, width, 3]``."""
    y, x = np.mgrid[:height, :width]
    return np.stack([np.sin(x / (20 + 3 * c + seed) + y / (30 - 5 * c)) * 100 + 128 for c in range(3)], -1).astype(
        np.uint8
    )


@functools.cache
def jpeg(seed: int) -> bytes:
    """An image as a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(picture(seed)).save(file, "JPEG", quality=90)
    return file.getvalue()


@functools.cache
def wav(seed: int) -> bytes:
    """A tone of a second or more as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as f:
        # One channel, 2 bytes in a sample, 16 kHz; the number of frames is set when they are written.
        f.setparams((1, 2, 16000, 0, "NONE", ""))
        f.writeframes((np.sin(np.arange(16000 + 500 * seed) * (0.1 + 0.02 * seed)) * 9000).astype(np.int16).tobytes())
    return file.getvalue()


def array(variant: str, seed: int) -> np.ndarray:
    """An array of one of the `_VARIANTS`. "volumes" have a leading axis of channels, "labels" are a segmented volume."""
    rng = np.random.default_rng(seed)
    if variant == "image":
        return picture(seed)
    if variant == "number":
        return np.array([seed % 3], np.int32)
    if variant == "labels":  # a volume with two objects
        labels = np.zeros((1, 160, 160, 160), np.uint8)
        labels[:, 30 + seed : 90, 40:100, 20:80], labels[:, 100:140, 100:150, 90:140] = 1, 2
        return labels
    shape = {"volumes": (1, 160, 160, 160), "volume": (160, 160, 160), "plane": (HEIGHT, WIDTH), "vector": (10,)}[
        variant
    ]
    return rng.random(shape, np.float32)


class Data:
    """Files in a folder, written when they are first needed.

    Attributes:
      variant: one of `_VARIANTS`, for arrays whose number of dimensions nothing determines.
      used_variant: whether it made a difference.
      flat: whether `root` directly contains the folders of the classes, not below train, val, ...
      used_root: whether `root` was used.
      sound: whether the script decodes sound. Then the files that it lists are sounds, too.
    """

    variants = _VARIANTS

    def __init__(self, folder: pathlib.Path, sound: bool = False):
        self.folder, self.sound = folder, sound
        self.variant, self.used_variant = _VARIANTS[0], False
        self.flat, self.used_root = False, False

    def has(self, x: Any) -> bool:
        """Whether the files exist and are the script's own: a reader of another kind of file gets files of its kind."""
        paths = [x] if isinstance(x, (str, os.PathLike)) else x
        return _exist(x) and not any(str(path).startswith(str(self.folder)) for path in paths)

    @functools.cached_property
    def images(self) -> str:
        """A folder with images (or sounds), in one subfolder for each of two classes."""
        root = self.folder / "images"
        for i in range(_IMAGES):
            path = root / f"class_{i % 2}" / f"{i:03d}.{'wav' if self.sound else 'jpg'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wav(i) if self.sound else jpeg(i))
        return str(root)

    @property
    def root(self) -> str:
        """A folder that looks like that of a data set."""
        return self.images if self.flat else self._deep

    @functools.cached_property
    def _deep(self) -> str:
        """A folder with images of classes below train, val, ..."""
        root = self.folder / "data"
        root.mkdir(parents=True)
        for name in ("train", "training", "val", "valid", "validation", "test"):
            os.symlink(self.images, root / name, target_is_directory=True)
        # The folders of the classes also lie directly in it.
        for name in os.listdir(self.images):
            os.symlink(os.path.join(self.images, name), root / name, target_is_directory=True)
        return str(root)

    @property
    def files(self) -> list[str]:
        """The files in `images`."""
        return sorted(str(p) for p in pathlib.Path(self.images).rglob("*.*"))

    @functools.cached_property
    def manifest(self) -> str:
        """A NeMo manifest of sounds."""
        lines = []
        for i in range(_IMAGES):
            path = self.folder / f"{i:03d}.wav"
            path.write_bytes(wav(i))
            lines.append(json.dumps({"audio_filepath": str(path), "duration": 1.0, "text": f"text {i}"}))
        path = self.folder / "manifest.json"
        path.write_text("\n".join(lines))
        return str(path)

    @functools.cached_property
    def file_list(self) -> str:
        """A list of the images and labels, relative to `images`."""
        path = self.folder / "list.txt"
        path.write_text("".join(f"{os.path.relpath(f, self.images)} {i % 2}\n" for i, f in enumerate(self.files)))
        return str(path)

    @functools.cached_property
    def annotations(self) -> str:
        """Annotations in COCO's format for the images, whose names are relative to `images`."""
        images, annotations = [], []
        for i, file in enumerate(self.files):
            images.append({"id": i, "file_name": os.path.relpath(file, self.images), "width": WIDTH, "height": HEIGHT})
            for k in range(1 + i % 3):
                x, y, w, h = 40.0 + 50 * k, 30.0 + 40 * k, 200.0, 150.0
                outline = [x, y, x + w, y, x + w, y + h, x, y + h]
                annotations.append(
                    {
                        "id": 10 * i + k,
                        "image_id": i,
                        "category_id": 1 + k,
                        "bbox": [x, y, w, h],
                        "area": w * h,
                        "iscrowd": 0,
                    }
                    | {"segmentation": [outline]}
                )
        path = self.folder / "annotations.json"
        categories = [{"id": 1 + k, "name": f"thing {k}"} for k in range(3)]
        path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
        return str(path)

    def arrays(self, count: int = _IMAGES) -> list[str]:
        """.npy files of the current variant."""
        self.used_variant = True
        root = self.folder / "arrays" / self.variant
        root.mkdir(parents=True, exist_ok=True)
        # Volumes are large: few files are written, and repeated in the list.
        few = 4 if self.variant in ("volumes", "volume", "labels") else _IMAGES
        paths = [root / f"{i:03d}.npy" for i in range(few)]
        for i, path in enumerate(paths):
            if not path.exists():
                np.save(path, array(self.variant, i))
        return [str(paths[i % few]) for i in range(count)]

    def tfrecord(self, features: Mapping[str, Any]) -> tuple[str, str]:
        """A TFRecord file that has these features, and its index."""
        digest = zlib.crc32(repr(sorted(features)).encode())
        path, index = self.folder / f"{digest}.tfrecord", self.folder / f"{digest}.idx"
        if not path.exists():
            data, lines = bytearray(), []
            for i in range(_IMAGES):
                record = _example({name: _feature(name, f, i) for name, f in features.items()})
                lines.append(f"{len(data)} {len(record) + 16}\n")
                # A record has a header, its length (8 bytes) and the length's checksum (4), and ends with its own checksum (4).
                length = struct.pack("<Q", len(record))
                data += length + _checksum(length) + record + _checksum(record)
            path.write_bytes(data)
            index.write_text("".join(lines))
        return str(path), str(index)

    @functools.cached_property
    def recordio(self) -> tuple[str, str]:
        """An MXNet RecordIO file of images, and its index."""
        path, index = self.folder / "images.rec", self.folder / "images.idx"
        data, lines = bytearray(), []
        for i in range(_IMAGES):
            # The image header of MXNet (flag, label, id, id2), and the image.
            record = struct.pack("<IfQQ", 0, float(i % 2), i, 0) + jpeg(i)
            lines.append(f"{i}\t{len(data)}\n")
            # RecordIO: the magic number, the length, and the record padded to a multiple of 4 bytes.
            data += struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4)
        path.write_bytes(data)
        index.write_text("".join(lines))
        return str(path), str(index)

    def webdataset(self, ext: Sequence[str]) -> str:
        """An archive whose samples have these components.

        Args:
          ext: the extensions of each component, of which the first is used, such as "jpg;png".
        """
        names = [extension for component in ext for extension in component.split(";")[:1]]
        path = self.folder / f"{zlib.crc32(repr(names).encode())}.tar"
        with tarfile.open(path, "w") as archive:
            for i in range(_IMAGES):
                for name in names:
                    content = (
                        jpeg(i)
                        if re.search("jpe?g|png|img|image", name)
                        else _npy(self.variant, i)
                        if "npy" in name
                        else b"%d" % (i % 2)
                    )
                    info = tarfile.TarInfo(f"{i:03d}.{name}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        return str(path)


def _npy(variant: str, seed: int) -> bytes:
    file = io.BytesIO()
    np.save(file, array(variant, seed))
    return file.getvalue()


# --- tf.Example
# ---------------------------------------------------------------------------------------------------------


def _varint(x: int) -> bytes:
    """Encodes an integer as a varint of Protocol Buffers: 7 bits in each byte, the lowest first, as two's complement."""
    x &= 2**64 - 1
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes([*out, x])


@functools.cache
def _crc_table() -> list[int]:
    """The remainders of all bytes for CRC-32C, whose reflected polynomial is 0x82F63B78."""
    table = []
    for x in range(256):
        for _ in range(8):
            x = x >> 1 ^ (0x82F63B78 if x & 1 else 0)
        table.append(x)
    return table


def _checksum(data: bytes) -> bytes:
    """TFRecord's checksum: a masked CRC-32C."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    # The mask: a rotation to the right by 15 bits, and a constant that is added.
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, value: bytes) -> bytes:
    """A field of Protocol Buffers with bytes as its value (wire type 2)."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _example(features: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An encoded tf.train.Example. `features`: by name, results of `_feature`."""
    # Example.features = 1, Features.feature = 1 (a map: key = 1, value = 2), Feature.{bytes,float,int64}_list = 1, 2, 3.
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _field(kind, value))) for name, (kind, value) in features.items()
    )
    return _field(1, entries)


def _feature(name: str, feature: Any, i: int) -> tuple[int, bytes]:
    """The values of a feature in record `i`, which its name suggests: the field number of the list in
    tf.train.Feature (1: bytes, 2: float, 3: int64), and the encoded list.
    """
    text = re.sub("[^a-z]", " ", name.lower())
    shape, dtype = getattr(feature, "shape", ()), getattr(getattr(feature, "dtype", None), "name", "string")
    count = 2 if shape is None else int(np.prod(shape))
    if dtype == "string":
        is_image = re.search("encoded|image|jpe?g|img|data|raw|x", text) and not re.search(
            "name|format|text|id", text.split()[-1]
        )
        return 1, b"".join(_field(1, jpeg(i) if is_image else b"text") for _ in range(count))
    if dtype == "float32":
        # Corners of boxes, in relative coordinates.
        low, high = (0.6, 0.9) if re.search("max|x2|y2|right|bottom", text) else (0.1, 0.4)
        return 2, _field(1, np.linspace(low, high, count, dtype="<f4").tobytes())
    value = HEIGHT if "height" in text else WIDTH if "width" in text else 1 + i % 2
    return 3, _field(1, _varint(value) * count)


# --- arguments of readers
# -----------------------------------------------------------------------------------------------


def reader_arguments(operator: str, given: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """The arguments of a reader. Files that do not exist are replaced by made-up ones.

    Args:
      operator: its name, such as "readers.file".
      given: the arguments that the script passes.
      data: makes the files.
    """
    new = dict(given)
    if operator == "readers.file":
        if _listed(new.get("files")) and not _exist(new["files"]):
            # As many as the script lists. Their paths are absolute.
            new["files"] = [data.files[i % _IMAGES] for i in range(len(new["files"]) or _IMAGES)]
            new.pop("file_root", None)
        elif new.get("file_list") is not None and not _is_list(new, data):
            new |= {"file_list": data.file_list, "file_root": data.images}
        elif new.get("file_root") is not None and not _has_images(new["file_root"]):
            new["file_root"] = data.images
    elif operator == "readers.numpy":
        if _listed(new.get("files")) and not _exist(new["files"], ".npy"):
            new["files"] = data.arrays(len(new["files"]) or _IMAGES)
            new.pop("file_root", None)
        elif new.get("files") is None and not _is_list(new, data, ".npy"):
            for name in ("file_root", "file_list", "file_filter"):
                new.pop(name, None)
            new["files"] = data.arrays()
    elif operator == "readers.tfrecord" and not (data.has(new.get("path")) and data.has(new.get("index_path"))):
        new["path"], new["index_path"] = data.tfrecord(new.get("features") or {})
    elif operator == "readers.coco" and not (_exist(new.get("annotations_file")) and _exist(new.get("file_root"))):
        new["file_root"], new["annotations_file"] = data.images, data.annotations
        new.pop("preprocessed_annotations", None)
    # Both exist, but the images may lie elsewhere.
    elif operator == "readers.coco":
        new["file_root"], new["annotations_file"] = _coco(new, data)
    elif operator == "readers.mxnet" and not (data.has(new.get("path")) and data.has(new.get("index_path"))):
        new["path"], new["index_path"] = ([x] for x in data.recordio)
    elif operator == "readers.nemo_asr" and not data.has(new.get("manifest_filepaths")):
        new["manifest_filepaths"] = data.manifest
    elif operator == "readers.webdataset" and not data.has(new.get("paths")):
        new["paths"] = data.webdataset(
            [new["ext"]] if isinstance(new.get("ext"), str) else list(new.get("ext") or ["jpg"])
        )
        new.pop("index_paths", None)
    return new


def _coco(given: Mapping[str, Any], data: Data) -> tuple[str, str]:
    """The arguments as given if they are a data set, otherwise a made-up one."""
    try:
        first = json.loads(pathlib.Path(given["annotations_file"]).read_text())["images"][0]["file_name"]
        if os.path.exists(os.path.join(given["file_root"], first)):
            return given["file_root"], given["annotations_file"]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        pass
    return data.images, data.annotations


def _listed(x: Any) -> bool:
    """Whether a value is a list or another sequence, not a text."""
    return x is not None and not isinstance(x, (str, bytes)) and hasattr(x, "__len__")


def _exist(x: Any, suffix: str = "") -> bool:
    """Whether a path, or each path of a list that is not empty, exists and ends with `suffix`."""
    if isinstance(x, (str, os.PathLike)):
        return os.path.exists(x) and str(x).endswith(suffix)
    return _listed(x) and len(x) > 0 and all(map(functools.partial(_exist, suffix=suffix), x))


def _has_images(folder: Any) -> bool:
    """Whether a folder has subfolders with images or sounds."""
    if not isinstance(folder, (str, os.PathLike)) or not os.path.isdir(folder):
        return False
    below = [os.path.join(folder, d) for d in os.listdir(folder)]
    return any(
        f.lower().endswith((".jpg", ".jpeg", ".png", ".wav", ".flac", ".ogg"))
        for d in below
        if os.path.isdir(d)
        for f in os.listdir(d)
    )


def _is_list(given: Mapping[str, Any], data: Data, suffix: str = "") -> bool:
    """Whether the first file of `file_list` exists; without a list, whether `file_root` has a file that ends with
    `suffix`.
    """
    path, root = given.get("file_list"), given.get("file_root") or ""
    try:
        if path is None:
            return any(f.endswith(suffix) for f in os.listdir(root))
        # A line is a path and a label, or only a path.
        line = pathlib.Path(path).read_text().split("\n", 1)[0]
        return os.path.exists(os.path.join(root or os.path.dirname(path), line.rpartition(" ")[0] or line))
    except (OSError, ValueError):
        return False


# --- fed data
# -----------------------------------------------------------------------------------------------------------

# The operators that tell what an `external_source` gives: encoded images, or boxes. Those of `_PASSING` tell nothing:
# the operators behind them do.
_DECODING = re.compile(r"decoders\.image|peek_image_shape|decoders\.inflate")
_BOXES = re.compile("bb_flip|bbox|box_encoder")
_PASSING = {"copy", "copy_to", "cast", "reshape", "reinterpret", "subscript"}
_EXTENTS = {"H": HEIGHT, "W": WIDTH, "C": 3, "F": 4, "D": 32}


def fed(consumers: Sequence[str], layout: str | None, dtype: Any, ndim: int | None, data: Data, i: int) -> np.ndarray:
    """Sample `i` for an `external_source` whose output these operators read.

    Args:
      consumers: the names of these operators.
      layout, dtype, ndim: as the script declares them; None: it does not.
    """
    kind = None if dtype is None else np.dtype(dtype)
    if "decoders.audio" in consumers:
        return np.frombuffer(wav(i % _IMAGES), np.uint8)
    if any(_DECODING.match(c) for c in consumers):
        return np.frombuffer(jpeg(i % _IMAGES), np.uint8)
    if not layout and ndim is None and any(_BOXES.search(c) for c in consumers):
        return np.array([[0.1, 0.1, 0.6, 0.5], [0.2, 0.3, 0.7, 0.9]], kind or np.float32)
    if layout:
        shape = tuple(_EXTENTS.get(letter, 2) for letter in layout)
    elif ndim is not None:  # a number, a vector, a plane, an image, or a sequence of images
        shape = {0: (), 1: (10,), 2: (HEIGHT, WIDTH), 3: (HEIGHT, WIDTH, 3), 4: (4, 240, 320, 3)}.get(ndim, (2,) * ndim)
    else:
        data.used_variant = True
        x = array(data.variant, i)
        return x if kind is None else x.astype(kind)
    values = np.resize(picture(i), shape) if shape else np.array(1)
    return values.astype(kind or np.uint8)


def passing(operator: str) -> bool:
    """Whether an operator's output resembles its input."""
    return operator in _PASSING


# --- arguments
# ----------------------------------------------------------------------------------------------------------


class Source:
    """A made-up source of data. `external_source` replaces it by what its consumers need. By itself it gives image
    files and labels.
    """

    def __init__(self, data: Data):
        self._data = data

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self()

    def __call__(self, *_: Any) -> Any:
        return [np.frombuffer(jpeg(i), np.uint8) for i in range(4)], [np.array([i % 2], np.int32) for i in range(4)]

    next = __next__

    def __len__(self) -> int:
        return _IMAGES


class Settings:
    """Replaces parsed arguments or a configuration. It has every attribute, with a value that is made up by name."""

    def __init__(self, guess: Callable[[str], Any]):
        object.__setattr__(self, "_guess", guess)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = self._guess(name)
        setattr(self, name, value)
        return value

    def __getitem__(self, name: Any) -> Any:
        return getattr(self, str(name))

    def __setitem__(self, name: Any, value: Any):
        setattr(self, str(name), value)

    def __contains__(self, name: Any) -> bool:
        return name in vars(self)

    def get(self, name: str, default: Any = None) -> Any:
        """As in a dict."""
        return getattr(self, name) if default is None else default


def _rules(data: Data, settings: Callable[[str], Any]) -> list[tuple[str, Any]]:
    """The rules that guess a value from an argument's name: ``(regular expression, value)``, the first match counts.

    The expressions are searched in the name in lower case. A value that is a function, such as `settings`, makes the
    value from the name.
    """
    numbers, files = list(range(_IMAGES)), data.files
    return [
        ("batch_?size|^bs$|^batch$", 4),
        ("num_threads|threads|workers|^nt$|py_num", 2),
        ("start_method", "fork"),
        ("num_shards|world_?size|num_?gpus?|n_?gpus?|shards$|num_devices|device_count|num_tasks|nodes", 1),
        ("device_?id|gpu_?id|rank|shard_?id|^gpu$|cur_shard|device_index|gpu_idx", 0),
        ("seed", 42),
        (
            "dali_cpu|cpu_only|use_cpu|^cpu$|debug|verbose|distributed|dont_|no_|skip_|disable|oversample|is_?test|testing|validat",
            False,
        ),
        (
            "is_?train|^train(ing)?$|augment|shuffle|mirror|^flip$|use_gpu|cache|load_to_gpu|pad_last|stick_to_shard|enable",
            True,
        ),
        ("annot|ann_file|json", data.annotations),
        ("file_list", data.file_list),
        ("idx_(dir|path|file)|index_(dir|path|file)", data.root),
        ("(file|image|img)_?(names|list)|(paths|files|filenames)$|^(imgs|images|fns|inputs)$", files),
        ("^(labels|lbls|targets)$", numbers),
        ("dir|root|folder|path|location|database|^data$|dataset_?name|url|^file$|filename", data.root),
        ("mean", [0.485, 0.456, 0.406]),
        ("std", [0.229, 0.224, 0.225]),
        ("decoder_device", "mixed"),
        ("padding", 0),
        ("(^|_)device$|dali_dev", "gpu"),
        ("layout", "CHW"),
        ("interpolation", "bilinear"),
        ("interp", types.INTERP_LINEAR),
        ("dtype|precision", types.FLOAT),
        ("patch_?size|roi|input_?shape|crop_?shape|target_?shape|volume", [64, 64, 64]),
        ("^dim$", 3),
        (
            "(crop|image|img|input|val|resize|final|target)_?(size|dim|shape)?$|^size$|resolution|crop_?(w|h)|width|height|^[hw]$|scale_?size",
            224,
        ),
        ("epoch$|iteration$|^(i|index|idx|start|step)$", 0),
        ("num_(classes|labels|outputs)", 10),
        ("num_(samples|images|iterations|batches|steps)|length|^len|^n$|initial_fill|buffer|steps|limit", 8),
        ("prefetch|queue|depth", 2),
        ("prob|alpha|ratio|rate|^p$|sigma|strength|magnitude|scale|factor|alpha", 0.5),
        ("oversampl", 0.4),
        ("angle|degrees", 10.0),
        ("mode", "train"),
        ("source|iter|eii|external|dataset|generator|callback|callable|loader", Source(data)),
        (
            "^(args?|opts?|options|cfg|conf|config|hparams|hp|params?|parameters|flags|settings|kwargs|self|hyper)$|_(args|cfg|config|params)$",
            settings,
        ),
    ]


class Guesses:
    """Values for arguments, guessed by name.

    Attributes:
      made: the values that were made up, by name.
      unsure: names that match no rule.
    """

    def __init__(self, data: Data):
        self.made: dict[str, Any] = {}
        self.unsure: list[str] = []
        self._data = data

    def _settings(self, name: str) -> Settings:
        return Settings(lambda attribute: self.of(attribute, prefix=f"{name}."))

    def of(
        self,
        name: str,
        annotation: Any = None,
        uses: Sequence[str] = (),
        prefix: str = "",
        has_attributes: bool = False,
    ) -> Any:
        """A value for an argument.

        Args:
          annotation: of the parameter, if it has one.
          uses: names of the arguments that the function passes it on as.
          prefix: for the name in reports: the settings that it belongs to, and a dot.
          has_attributes: whether the function reads its attributes.
        """
        value, sure = self._value(name, annotation, uses, within=bool(prefix))
        # An attribute in capitals, such as ``cfg.DATA``, is probably a section of settings.
        if value is None and (has_attributes or (prefix and name.isupper())):
            value = self._settings(prefix + name)
        self.made[prefix + name] = value
        if not sure and prefix + name not in self.unsure:
            self.unsure.append(prefix + name)
        return value

    def _value(self, name: str, annotation: Any, uses: Sequence[str], within: bool) -> tuple[Any, bool]:
        """The value for an argument, and whether a rule has made it. The value is None if nothing is known.

        Args:
          annotation: of the parameter, if it has one.
          uses: names of the arguments that the function passes it on as.
          within: whether the argument is an attribute of `Settings`, which has no sources of data.
        """
        expected_type = annotation if isinstance(annotation, type) else _NAMED.get(str(annotation).strip("'\""))
        for candidate_name in (name, *uses):
            for pattern, value in _rules(self._data, self._settings):
                if re.search(pattern, candidate_name.lower()):
                    if callable(value) and not isinstance(value, Source):
                        value = value(name)
                    if isinstance(value, Source) and within:
                        continue
                    if expected_type in (bool, int, float, str) and not isinstance(value, expected_type):
                        try:
                            value = expected_type(value)  # pyright: ignore[reportArgumentType]
                        except (TypeError, ValueError):
                            continue
                    self._data.used_root |= value is self._data.root
                    return value, True
        if expected_type in (bool, int, float, str):
            return {bool: False, int: 1, float: 0.5, str: "x"}[expected_type], False
        return None, False


# Types by the text of an annotation.
_NAMED = {"bool": bool, "int": int, "float": float, "str": str}


def needed(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in signature.parameters.values() if p.default is p.empty and p.kind not in kinds]
