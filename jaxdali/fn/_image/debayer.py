"""debayer: colour images from the raw images of a sensor with a mosaic of colour filters."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Len, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, ListOf, PerFrame, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status

_LAYOUTS = {2: "HW", 3: "HWC", 4: "FHWC"}  # of inputs without one
_GRAY = {"R": 4899, "G": 9617, "B": 1868}  # in units of 2**-14
_SMALL = 8  # extents below which "vng_ocv" is bilinear


class Debayer(HostOperator):
    """Interpolates each pixel's missing colours from its neighbours, by OpenCV's algorithms."""

    name = "debayer"
    algorithm: str | None

    def takes_image(self, image: Spec) -> bool:
        return True

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        layout = image.layout or _LAYOUTS.get(image.ndim, "")
        if layout not in ("HW", "HWC", "FHW", "FHWC"):
            raise ArgumentError(
                f"the input must be of layout HW, HWC, FHW or FHWC, got {image.layout or f'{image.ndim} dimensions'}"
            )
        if image.dtype not in (np.uint8, np.uint16):
            raise ArgumentError(f"the input must be uint8 or uint16, got {image.dtype}")
        if self.algorithm == "vng_ocv" and image.dtype != np.uint8:
            raise ArgumentError(f'algorithm="vng_ocv" takes uint8, got {image.dtype}')
        if self.algorithm == "default_npp":
            raise ArgumentError('algorithm="default_npp" is only available on GPUs: choose one that ends in "_ocv"')
        self.args.check_width("blue_position", 2, (image, *arguments), one_for_all=True)
        extents = [image.extent(d) for d in range(len(layout.rstrip("C")))]
        shape = None if None in extents else tuple(n for n in extents if n is not None)
        return (self._spec(image.dtype, layout, extents, shape),)

    def _spec(self, dtype: np.dtype, layout: str, extents: list[int | None], shape: tuple[int, ...] | None) -> Spec:
        channels = 1 if self.algorithm == "gray_ocv" else 3
        whole = None if shape is None else (*shape, channels)
        return Spec(dtype, len(extents) + 1, whole, layout.rstrip("C") + "C", None if whole else (*extents, channels))

    def run(self, ctx: HostContext, image: Value, *arguments: Value) -> tuple[Any, ...]:
        blue = self.arguments(ctx, arguments).vector("blue_position", 2, one_for_all=True)
        assert blue is not None
        out, results = ctx.spec, []
        channels = out.extent(out.ndim - 1) or 0
        for i in range(ctx.N):
            x = image.sample(i)
            rows = x.shape[:-1] if x.ndim == out.ndim else x.shape  # without the axis of channels
            made = np.zeros((*rows, channels), out.dtype)
            if x.ndim == out.ndim and x.shape[-1] != 1:
                ctx.fail(i, Status.INPUT, f"the input must have one channel, got {x.shape[-1]}")
            elif rows[-2] % 2 or rows[-1] % 2:
                ctx.fail(i, Status.INPUT, f"height and width must be even, got {rows[-2]} and {rows[-1]}")
            elif ctx.present[i]:
                frames = x.reshape(-1, *rows[-2:])
                for frame, result in zip(frames, made.reshape(len(frames), *rows[-2:], channels)):
                    result[...] = _demosaiced(frame, self.algorithm or "bilinear_ocv", int(blue[i, 0]), int(blue[i, 1]))
            results.append(made)
        return (np.stack(results) if out.shape is not None else results,)


def _demosaiced(x: np.ndarray, algorithm: str, y0: int, x0: int) -> np.ndarray:
    """An image with its colours ``[H, W, channels]``; (y0, x0): place of blue in the tile that begins in the second row
    and column.
    """
    if min(x.shape) <= 2:
        return np.zeros((*x.shape, 1 if algorithm == "gray_ocv" else 3), x.dtype)
    if algorithm == "vng_ocv" and min(x.shape) >= _SMALL:
        return _by_gradients(x, y0, x0)
    inner = _from_neighbours(x, algorithm, y0, x0)
    return np.pad(inner, ((1, 1), (1, 1), (0, 0)), mode="edge")


def _colours(shape: tuple[int, int], y0: int, x0: int, border: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which pixels inside the border are blue, which are red, and which are in a row with blue ones."""
    y, x = (np.arange(border, n - border) for n in shape)
    in_row, in_column = ((y + 1 - y0) % 2 == 0)[:, None], ((x + 1 - x0) % 2 == 0)[None]
    return in_row & in_column, ~in_row & ~in_column, np.broadcast_to(in_row, (len(y), len(x)))


def _from_neighbours(x: np.ndarray, algorithm: str, y0: int, x0: int) -> np.ndarray:
    """The mean of the eight neighbours of each pixel, except at the edges."""

    def at(dy: int, dx: int) -> np.ndarray:
        return x[1 + dy : x.shape[0] - 1 + dy, 1 + dx : x.shape[1] - 1 + dx].astype(np.int64)

    blue, red, blue_row = _colours(x.shape, y0, x0, 1)
    green = ~(blue | red)
    own, vertical, horizontal = at(0, 0), at(-1, 0) + at(1, 0), at(0, -1) + at(0, 1)
    diagonal = at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)
    if algorithm == "gray_ocv":
        r, g, b = _GRAY["R"], _GRAY["G"], _GRAY["B"]
        of_green = own * 2 * g + vertical * np.where(blue_row, r, b) + horizontal * np.where(blue_row, b, r)
        of_others = own * 4 * np.where(blue, b, r) + (vertical + horizontal) * g + diagonal * np.where(blue, r, b)
        return np.where(green, (of_green + (1 << 14)) >> 15, (of_others + (1 << 15)) >> 16)[..., None].astype(x.dtype)
    v, h, d = (vertical + 1) >> 1, (horizontal + 1) >> 1, (diagonal + 2) >> 2
    if algorithm == "edgeaware_ocv":  # along an edge, not across
        greens = np.where(np.abs(at(0, -1) - at(0, 1)) > np.abs(at(-1, 0) - at(1, 0)), v, h)
    else:
        greens = (vertical + horizontal + 2) >> 2
    return np.stack(
        [
            np.where(red, own, np.where(blue, d, np.where(blue_row, v, h))),
            np.where(green, own, greens),
            np.where(blue, own, np.where(red, d, np.where(blue_row, h, v))),
        ],
        axis=-1,
    ).astype(x.dtype)


def _by_gradients(image: np.ndarray, y0: int, x0: int) -> np.ndarray:
    """Means over the directions in which the image changes least (Chang, Cheung and Pang, 1999), as OpenCV 5 has it."""
    x = np.pad(image, 2, mode="reflect").astype(np.int64)
    (H, W), A = x.shape, np.abs

    def near(dy: int, dx: int) -> np.ndarray:
        return x[1 + dy : H - 1 + dy, 1 + dx : W - 1 + dx]

    def gradient(values: np.ndarray) -> np.ndarray:
        return np.pad(values, 1)

    def at(a: np.ndarray, dy: int, dx: int) -> np.ndarray:
        return a[2 + dy : H - 2 + dy, 2 + dx : W - 2 + dx]

    def p(dy: int, dx: int) -> np.ndarray:
        return at(x, dy, dx)

    rising, falling = 2 * A(near(-1, 1) - near(1, -1)), 2 * A(near(-1, -1) - near(1, 1))
    across = gradient(A(near(-1, -1) - near(1, -1)) + 2 * A(near(-1, 0) - near(1, 0)) + A(near(-1, 1) - near(1, 1)))
    along = gradient(A(near(-1, -1) - near(-1, 1)) + 2 * A(near(0, -1) - near(0, 1)) + A(near(1, -1) - near(1, 1)))
    rising_more = gradient(rising + A(near(-1, 0) - near(0, -1)) + A(near(1, 0) - near(0, 1)))
    falling_more = gradient(falling + A(near(-1, 0) - near(0, 1)) + A(near(1, 0) - near(0, -1)))
    rising, falling = gradient(rising), gradient(falling)
    greens = gradient((near(-1, 0) + near(0, -1) + near(0, 1) + near(1, 0)) >> 1)

    blue, red, blue_row = _colours((H, W), y0, x0, 2)
    green = ~(blue | red)

    def diagonal(dy: int, dx: int) -> np.ndarray:
        few, more = (rising, rising_more) if dy != dx else (falling, falling_more)
        of_green = at(few, 0, 0) + at(few, dy, 0) + at(few, 0, dx) + at(few, dy, dx)
        return np.where(green, of_green, at(more, 0, 0) + at(more, dy, dx))

    # Of each direction the gradient, and twice the mean of three colours: its own; green, or that of the row of a green
    # pixel; the other.
    directions: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    for s in (-1, 1):
        sums = (
            np.where(green, p(2 * s, -1) + p(2 * s, 1), 2 * p(s, 0)),
            np.where(green, 2 * p(s, 0), p(s, -1) + p(s, 1)),
        )
        directions.append((at(across, 0, 0) + at(across, s, 0), p(2 * s, 0) + p(0, 0), *sums))
        sums = 2 * p(0, s), np.where(green, p(-1, 2 * s) + p(1, 2 * s), p(-1, s) + p(1, s))
        directions.append((at(along, 0, 0) + at(along, 0, s), p(0, 2 * s) + p(0, 0), *sums))
    for dy, dx in ((-1, 1), (1, -1), (-1, -1), (1, 1)):
        own = np.where(green, 2 * p(dy, dx), p(2 * dy, 2 * dx) + p(0, 0))
        first = np.where(green, p(2 * dy, dx) + p(0, dx), at(greens, dy, dx))
        directions.append((diagonal(dy, dx), own, first, np.where(green, p(dy, 0) + p(dy, 2 * dx), 2 * p(dy, dx))))

    gradients = np.stack([d[0] for d in directions])
    chosen = gradients < gradients.min(axis=0) + np.maximum(gradients.max(axis=0) >> 1, 1)
    own, first, other = (sum(np.where(c, d[k], 0) for c, d in zip(chosen, directions)) for k in (1, 2, 3))
    count = chosen.sum(axis=0)
    share = np.float32(0.5) / count.astype(np.float32)
    # OpenCV takes a rounded constant for seven directions where it does not work on eight columns at once.
    start = np.where(green[:, :1], 3, 2)
    columns, vectors = np.arange(2, W - 2), start + 8 * np.maximum(0, (W - 10 - start) // 8 + 1)
    share = np.where(((columns >= vectors) | (columns < start)) & (count == 7), np.float32(0.0714286), share)

    def corrected(sums: Any) -> np.ndarray:
        return p(0, 0) + np.rint((sums - own).astype(np.float32) * share).astype(np.int64)

    a, b = corrected(first), corrected(other)
    return np.clip(
        np.stack(
            [
                np.where(red, p(0, 0), np.where(blue | blue_row, b, a)),
                np.where(green, p(0, 0), a),
                np.where(blue, p(0, 0), np.where(green & blue_row, a, b)),
            ],
            axis=-1,
        ),
        0,
        255,
    ).astype(np.uint8)


@operator_function(Debayer)
def debayer(
    input: Input,
    /,
    *,
    blue_position: Annotated[PerFrame[ListOf[int]], Len(1, 2), Range(0, 1)],
    algorithm: Literal["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv", "default_npp"] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes colour images from raw images of a sensor with a mosaic of red, green and blue filters (Bayer, 1976).

    The pixels equal those of DALI's CPU operator, which uses OpenCV. Images are host values.

    Args:
      input: images or sequences of one channel, of layout HW, HWC, FHW or FHWC, uint8 or uint16. Height and width are
        even.
      blue_position: (row, column) of blue in the tile of 2x2 pixels that begins in the second row and column: (0, 0) is
        OpenCV's BG, (0, 1) GB, (1, 0) GR, (1, 1) RG. May be per sample or frame.
      algorithm: "bilinear_ocv" (default), "edgeaware_ocv", "vng_ocv" (variable number of gradients, only uint8) or
        "gray_ocv", which makes gray images. DALI's algorithm for GPUs, "default_npp", is refused.
      device: with "gpu", the result is moved to the accelerator.

    Returns:
      RGB images ``HWC`` or ``FHWC`` of the same type; with "gray_ocv" they have one channel. Images with an extent of 2
      are black, as in OpenCV.

    Raises:
      ArgumentError: the layout or type is not accepted, or not by this algorithm.
      OperatorError: a sample has several channels, or an odd height or width.

    Example:
      >>> images = fn.debayer(raw, blue_position=(0, 0))
    """
    ...
