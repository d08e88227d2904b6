"""`jaxdali.show`: shows the images of a batch."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._core.tracebacks import boundary
from .._tensors.thumbnails import as_images, pixels_of, scale_of
from ..backend import TensorListCPU, TensorListGPU
from .pipeline import Pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = 1.7  # width and height of one image


class Picture:
    """A grid of images. A notebook displays it automatically; elsewhere, use `save`.

    Attributes:
      figure: the matplotlib figure, which may be changed.
    """

    def __init__(self, figure: Figure, text: str):
        self.figure = figure
        self._text = text

    def save(self, path: str | os.PathLike[str], dpi: int = 100) -> None:
        """Writes the picture. The file's extension selects the format, as in matplotlib: png, pdf, svg, jpg."""
        self.figure.savefig(path, dpi=dpi)

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.figure.savefig(data, format="png", dpi=100)
        return data.getvalue()

    def __repr__(self) -> str:
        return f"<{self._text}; a notebook displays it, .save(path) writes it>"


@boundary
def show(
    batch: Any,
    *,
    labels: str | Sequence[Any] | None = None,
    classes: Sequence[str] | None = None,
    boxes: str | Sequence[Any] | None = None,
    ltrb: bool = False,
    layout: str | None = None,
    columns: int | None = None,
    most: int = 32,
) -> Picture:
    """Makes a picture of the images in a batch.

    Args:
      batch: the result of an iterator or of `Pipeline.run`, or one of its outputs: a dict or a sequence of outputs, a
        jax.Array, sharded or not (if several processes share it, this process's part), a NumPy array, a `TensorList`,
        or a list of arrays of equal or different sizes. Outputs with images are drawn, of any element type: ``HWC`` or
        ``CHW`` with 1, 3 or 4 channels, ``HW`` in gray. The range of floats is 0 .. 1 or 0 .. 255. If they exceed both
        ranges, as normalised images do, the minimum becomes black and the maximum white.
      labels: the texts above the images: a name in the dict, or one value for each image. Default: every output with
        one number per image.
      classes: the names of classes, if labels are their numbers.
      boxes: boxes to draw: a name in the dict, or an array ``[n, 4]`` for each image. If no number of the batch exceeds
        1, they are relative to the image's size, otherwise pixels. Boxes without extent, as padding has them, are left
        out. If there is a label for each box, it stands at its box.
      ltrb: boxes are (left, top, right, bottom), not (left, top, width, height).
      layout: the layout of the images, if their shape does not show it.
      columns: images in a row. Several outputs with images have a row each, with the first `columns` samples.
      most: maximum number of images.

    Returns:
      A `Picture`. Needs matplotlib (``pip install jaxdali[examples]``).

    Raises:
      TypeError: `batch` is not a batch but, for example, a pipeline, an iterator or a path.
      ValueError: the batch has no images, the number of labels or of arrays of boxes differs from that of the images,
        or a box does not have four numbers.

    Example:
      >>> jaxdali.show(next(iterator), classes=["cat", "dog"]).save("batch.png")
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise ImportError("jaxdali.show needs matplotlib: pip install jaxdali[examples]") from e
    _check_is_batch(batch)
    outputs = _outputs(batch)
    annotations = {x for x in (boxes, labels) if isinstance(x, str)}
    images = {
        name: samples for name, x in outputs.items() if name not in annotations and (samples := images_of(x, layout))
    }
    if not images:
        raise ValueError(f"there are no images in the batch: {_describe(outputs)}; use layout= to name the axes")
    num_images = len(next(iter(images.values())))
    drawn_boxes = [] if boxes is None else _boxes(outputs, boxes, ltrb, num_images)
    are_relative = all(b.max(initial=0) <= 1 for b in drawn_boxes)
    box_labels = _labels_of_boxes(outputs, labels, classes, drawn_boxes)
    captions = [] if box_labels else _captions(outputs, images, labels, classes, num_images)
    if len(images) == 1:
        count = min(num_images, most)
        # By default, 1.5 times as many columns as rows, but at most 8.
        columns = min(count, columns or min(8, math.ceil(math.sqrt(1.5 * count))))
        rows = math.ceil(count / columns)
        # Of each image drawn: its output and number, and its row and column in the picture.
        cells = [((name, i), divmod(i, columns)) for name in images for i in range(count)]
    else:
        rows, columns = len(images), min(num_images, columns or 8, max(1, most // len(images)))
        cells = [
            ((name, i), (row, i)) for row, name in enumerate(images) for i in range(min(columns, len(images[name])))
        ]
    shapes = [images[name][i].shape for (name, i), _ in cells]
    aspect = float(np.median([h / w for h, w, *_ in shapes]))
    # Captions take 0.25 inches of each row.
    figure = Figure(
        figsize=(columns * _INCHES, rows * (_INCHES * aspect + 0.25 * bool(captions))), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    scales = {name: scale_of(samples) for name, samples in images.items()}
    for (name, i), (row, column) in cells:
        axis = axes[row, column]
        axis.imshow(pixels_of(images[name][i], scales[name]), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        if drawn_boxes:
            height, width = images[name][i].shape[:2] if are_relative else (1, 1)
            _draw_boxes(axis, drawn_boxes[i] * [width, height, width, height], box_labels[i] if box_labels else ())
        if captions and (row == 0 or len(images) == 1):
            axis.set_title(captions[i], fontsize=8, pad=3)
        if column == 0 and len(images) > 1:  # the axes are off, and with them their labels
            axis.text(-0.04, 0.5, name, transform=axis.transAxes, rotation=90, ha="right", va="center", fontsize=8)
    drawn = len({i for (_, i), _ in cells})
    kinds = f" of {', '.join(images)}" if len(images) > 1 else ""
    return Picture(figure, f"picture of {drawn}{'' if drawn == num_images else f' of {num_images}'} images{kinds}")


def _check_is_batch(batch: Any):
    """Raises TypeError for a value that is not a batch. The message says how to get a batch from it."""
    if _is_tensor_list(batch) or isinstance(batch, (Mapping, list, tuple)) or hasattr(batch, "__array__"):
        return
    if isinstance(batch, Pipeline):
        advice = ": jaxdali.show(pipeline.run()) shows its next batch"
    elif isinstance(batch, Iterator):
        advice = ": jaxdali.show(next(iterator)) shows its next batch"
    elif isinstance(batch, (str, bytes, os.PathLike)):
        advice = ": a JPEG file is shown by jaxdali.show([jaxdali.decode_jpeg(pathlib.Path(path).read_bytes())])"
    else:
        advice = ""
    raise TypeError(
        f"jaxdali.show takes a batch, as an iterator or Pipeline.run returns it, or arrays; got {type(batch).__name__}{advice}"
    )


def _outputs(batch: Any) -> dict[str, Any]:
    """The outputs of a batch by name, or by number if they have no names."""
    if isinstance(batch, Mapping):
        return {str(k): x for k, x in batch.items()}
    # A list or tuple of arrays of two or three axes is one output, and each array an image.
    one_per_sample = isinstance(batch, (list, tuple)) and all(
        not _is_tensor_list(x) and np.ndim(x) in (2, 3) for x in batch
    )
    if isinstance(batch, (list, tuple)) and not one_per_sample:
        # DALIGenericIterator of another framework returns one dict per pipeline.
        if len(batch) == 1 and isinstance(batch[0], Mapping):
            return _outputs(batch[0])
        return {str(i): x for i, x in enumerate(batch)}
    return {"images": batch}


def _is_tensor_list(x: Any) -> bool:
    return isinstance(x, (TensorListCPU, TensorListGPU))


def _samples(x: Any) -> list[np.ndarray]:
    """The samples of an output, on the host."""
    if _is_tensor_list(x):
        return [np.asarray(sample) for sample in x.as_cpu()]
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        # The local parts by the rows of the batch at which they begin, so that a part and its replicas count once.
        data_by_start = {s.index[0].start or 0: s.data for s in x.addressable_shards if s.data.ndim}
        return [row for start in sorted(data_by_start) for row in np.asarray(data_by_start[start])]
    if isinstance(x, (list, tuple)):
        return [np.asarray(sample) for sample in x]
    a = np.asarray(x)
    return list(a) if a.ndim else []


def images_of(x: Any, layout: str | None) -> list[np.ndarray]:
    """The samples of an output as images ``HWC`` or ``HW``; empty if they are not images."""
    return as_images(_samples(x), layout or (x.layout() if _is_tensor_list(x) else ""))


def _captions(
    outputs: Mapping[str, Any],
    images: Mapping[str, Any],
    labels: str | Sequence[Any] | None,
    classes: Sequence[str] | None,
    num_images: int,
) -> list[str]:
    """The text above each image, from `labels` or from the outputs with one number per image; empty if there are none.

    Args:
      outputs: all outputs of the batch, by name.
      images: the outputs that are images.
      labels, classes: the arguments of `show`.
      num_images: number of images in an output.
    """
    if isinstance(labels, str):
        if labels not in outputs:
            raise ValueError(f"there is no output {labels!r} for the labels: {_describe(outputs)}")
        columns = {labels: _samples(outputs[labels])}
    elif labels is not None:
        columns = {"labels": list(labels)}
    else:
        candidates = {name: _samples(x) for name, x in outputs.items() if name not in images}
        columns = {
            name: samples
            for name, samples in candidates.items()
            if len(samples) == num_images and all(np.size(x) == 1 for x in samples)
        }
    if any(len(column) != num_images for column in columns.values()):
        raise ValueError(
            f"there are {num_images} images and {', '.join(str(len(column)) for column in columns.values())} labels"
        )

    def text(x: Any) -> str:
        return _label(x, classes)

    if len(columns) == 1:
        return [text(x) for column in columns.values() for x in column]
    return (
        ["\n".join(f"{name} {text(column[i])}" for name, column in columns.items()) for i in range(num_images)]
        if columns
        else []
    )


def _label(x: Any, classes: Sequence[str] | None) -> str:
    """One label: a class, a number or a text."""
    value = x.reshape(-1)[0].item() if isinstance(x, (np.ndarray, np.generic)) and np.size(x) == 1 else x
    if classes is not None and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(classes):
        return classes[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _boxes(outputs: Mapping[str, Any], boxes: str | Sequence[Any], ltrb: bool, num_images: int) -> list[np.ndarray]:
    """The boxes of each image, ``f64[n, 4]``: left, top, right, bottom. `boxes` and `ltrb`: the arguments of `show`."""
    if isinstance(boxes, str) and boxes not in outputs:
        raise ValueError(f"there is no output {boxes!r} for the boxes: {_describe(outputs)}")
    samples = _samples(outputs[boxes] if isinstance(boxes, str) else boxes)
    if len(samples) != num_images:
        raise ValueError(f"there are {num_images} images and {len(samples)} arrays of boxes")
    corners_of_images = []
    for array in samples:
        if array.size and (array.ndim != 2 or array.shape[1] != 4):
            raise ValueError(f"boxes must be [n, 4] for each image, got {list(array.shape)}")
        corners = array.astype(np.float64).reshape(-1, 4)
        if not ltrb:  # from width and height
            corners[:, 2:] += corners[:, :2]
        corners_of_images.append(corners)
    return corners_of_images


def _labels_of_boxes(
    outputs: Mapping[str, Any],
    labels: str | Sequence[Any] | None,
    classes: Sequence[str] | None,
    boxes: Sequence[np.ndarray],
) -> list[list[str]]:
    """The texts at the boxes of each image; empty if the labels are those of images."""
    if labels is None or not boxes or (isinstance(labels, str) and labels not in outputs):
        return []
    samples = _samples(outputs[labels]) if isinstance(labels, str) else [np.asarray(x) for x in labels]
    if [x.size for x in samples] != [len(b) for b in boxes] or all(x.ndim == 0 for x in samples):
        return []
    return [[_label(v, classes) for v in x.reshape(-1)] for x in samples]


def _draw_boxes(axes: Any, boxes: np.ndarray, texts: Sequence[str]):
    """Draws the boxes of one image, in pixels. The first pixel begins at -0.5."""
    from matplotlib.patches import Rectangle

    for i, (left, top, right, bottom) in enumerate(boxes):
        if right > left and bottom > top:
            color = f"C{i}"
            axes.add_patch(
                Rectangle(
                    (left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor=color, linewidth=1.2
                )
            )
            if texts:
                axes.text(
                    left,
                    top,
                    texts[i],
                    fontsize=6,
                    color="white",
                    va="top",
                    bbox={"facecolor": color, "pad": 0.8, "linewidth": 0},
                )


def _describe(outputs: Mapping[str, Any]) -> str:
    """Describes the outputs of a batch, for errors."""

    def describe_output(x: Any) -> str:
        samples = _samples(x)
        return (
            f"{len(samples)} samples of shape {list(samples[0].shape)} and type {samples[0].dtype}"
            if samples
            else "empty"
        )

    return "; ".join(f"{name}: {describe_output(x)}" for name, x in outputs.items()) or "it is empty"
