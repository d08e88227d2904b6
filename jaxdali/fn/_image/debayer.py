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

_LAYOUTS = {2: "HW", 3: "HWC", 4: "FHWC"}  # of inputs without a layout, by rank
_GRAY = {"R": 4899, "G": 9617, "B": 1868}  # the luma of BT.601 (0.299, 0.587, 0.114) in OpenCV's units of 2**-14
_SMALL = 8  # below this height or width, "vng_ocv" is bilinear


class Debayer(HostOperator):
    """Interpolates each pixel's missing colours from its neighbours, by OpenCV's algorithms."""

    name = "debayer"
    algorithm: str | None

    def takes_image(self, image: Spec) -> bool:
        return True

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """Images with an axis of channels at the end, which the input may lack."""
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
        """The spec of the colour images.

        Args:
          layout: the input's layout, with or without C.
          extents: of the input without channels; None: the extent varies.
          shape: `extents` if all are known; otherwise None.
        """
        channels = 1 if self.algorithm == "gray_ocv" else 3
        whole = None if shape is None else (*shape, channels)
        return Spec(dtype, len(extents) + 1, whole, layout.rstrip("C") + "C", None if whole else (*extents, channels))

    def run(self, ctx: HostContext, image: Value, *arguments: Value) -> tuple[Any, ...]:
        """Interpolates the frames of each sample, one by one. A failed or absent sample becomes zeros."""
        blue = self.arguments(ctx, arguments).vector("blue_position", 2, one_for_all=True)
        assert blue is not None
        out, results = ctx.spec, []
        channels = out.extent(out.ndim - 1) or 0
        for i in range(ctx.N):
            x = image.sample(i)
            rows = x.shape[:-1] if x.ndim == out.ndim else x.shape  # without the axis of channels
            colored = np.zeros((*rows, channels), out.dtype)
            if x.ndim == out.ndim and x.shape[-1] != 1:
                ctx.fail(i, Status.INPUT, f"the input must have one channel, got {x.shape[-1]}")
            elif rows[-2] % 2 or rows[-1] % 2:
                ctx.fail(i, Status.INPUT, f"height and width must be even, got {rows[-2]} and {rows[-1]}")
            elif ctx.present[i]:
                frames = x.reshape(-1, *rows[-2:])
                for frame, result in zip(frames, colored.reshape(len(frames), *rows[-2:], channels)):
                    result[...] = _demosaiced(frame, self.algorithm or "bilinear_ocv", int(blue[i, 0]), int(blue[i, 1]))
            results.append(colored)
        return (np.stack(results) if out.shape is not None else results,)


def _demosaiced(x: np.ndarray, algorithm: str, y0: int, x0: int) -> np.ndarray:
    """The colour image ``[H, W, channels]`` of a raw image ``[H, W]``.

    `y0`, `x0`: place of blue in the tile of 2 x 2 filters that begins in the second row and column, as OpenCV counts.
    """
    # All pixels are outermost ones: none has neighbours on all sides.
    if min(x.shape) <= 2:
        return np.zeros((*x.shape, 1 if algorithm == "gray_ocv" else 3), x.dtype)
    if algorithm == "vng_ocv" and min(x.shape) >= _SMALL:
        return _by_gradients(x, y0, x0)
    # The outermost pixels lack neighbours. As in OpenCV they are copies of the next inner ones.
    inner = _from_neighbours(x, algorithm, y0, x0)
    return np.pad(inner, ((1, 1), (1, 1), (0, 0)), mode="edge")


def _colours(shape: tuple[int, int], y0: int, x0: int, border: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of the pixels at least `border` from the edges: blue ones, red ones, and all in rows with blue ones."""
    # The tile of filters begins in row 1 and column 1: blue is in rows and columns 1 + y0 and 1 + x0, and every second.
    y, x = (np.arange(border, n - border) for n in shape)
    in_row, in_column = ((y + 1 - y0) % 2 == 0)[:, None], ((x + 1 - x0) % 2 == 0)[None]
    return in_row & in_column, ~in_row & ~in_column, np.broadcast_to(in_row, (len(y), len(x)))


def _from_neighbours(x: np.ndarray, algorithm: str, y0: int, x0: int) -> np.ndarray:
    """The colours of all pixels but the outermost, by the means of their neighbours of each colour."""

    def shifted(dy: int, dx: int) -> np.ndarray:
        """For each inner pixel the neighbour that is `dy` rows below and `dx` columns to the right."""
        return x[1 + dy : x.shape[0] - 1 + dy, 1 + dx : x.shape[1] - 1 + dx].astype(np.int64)

    # Masks of the inner pixels.
    blue, red, blue_row = _colours(x.shape, y0, x0, 1)
    green = ~(blue | red)
    center, vertical, horizontal = shifted(0, 0), shifted(-1, 0) + shifted(1, 0), shifted(0, -1) + shifted(0, 1)
    diagonal = shifted(-1, -1) + shifted(-1, 1) + shifted(1, -1) + shifted(1, 1)
    if algorithm == "gray_ocv":
        r, g, b = _GRAY["R"], _GRAY["G"], _GRAY["B"]
        # Weighted sums of the colours. The weights' unit of 2**-14 becomes 2**-15 at green pixels, where red and blue
        # are sums of two neighbours, and 2**-16 at the others, where the two missing colours are sums of four.
        of_green = center * 2 * g + vertical * np.where(blue_row, r, b) + horizontal * np.where(blue_row, b, r)
        of_others = center * 4 * np.where(blue, b, r) + (vertical + horizontal) * g + diagonal * np.where(blue, r, b)
        return np.where(green, (of_green + (1 << 14)) >> 15, (of_others + (1 << 15)) >> 16)[..., None].astype(x.dtype)
    # Rounded means of two, two and four neighbours.
    v, h, d = (vertical + 1) >> 1, (horizontal + 1) >> 1, (diagonal + 2) >> 2
    if algorithm == "edgeaware_ocv":  # along an edge, not across
        greens = np.where(np.abs(shifted(0, -1) - shifted(0, 1)) > np.abs(shifted(-1, 0) - shifted(1, 0)), v, h)
    else:
        greens = (vertical + horizontal + 2) >> 2
    return np.stack(
        [
            np.where(red, center, np.where(blue, d, np.where(blue_row, v, h))),
            np.where(green, center, greens),
            np.where(blue, center, np.where(red, d, np.where(blue_row, h, v))),
        ],
        axis=-1,
    ).astype(x.dtype)


def _by_gradients(image: np.ndarray, y0: int, x0: int) -> np.ndarray:
    """Means over the directions in which the image changes least, for all pixels: the variable number of gradients of
    Chang, Cheung and Pang (1999), as OpenCV 5 implements it.

    Each pixel has eight directions. A direction has a gradient, and an estimate of the differences between the colours.
    """
    x = np.pad(image, 2, mode="reflect").astype(np.int64)
    (H, W), A = x.shape, np.abs

    def near(dy: int, dx: int) -> np.ndarray:
        """The neighbours of all pixels but the outermost of the padded image."""
        return x[1 + dy : H - 1 + dy, 1 + dx : W - 1 + dx]

    def full_size(values: np.ndarray) -> np.ndarray:
        """An array of `near` with the extents of the padded image again."""
        return np.pad(values, 1)

    def at(a: np.ndarray, dy: int, dx: int) -> np.ndarray:
        """The elements of `a` at the neighbours of the image's own pixels."""
        return a[2 + dy : H - 2 + dy, 2 + dx : W - 2 + dx]

    def p(dy: int, dx: int) -> np.ndarray:
        """The raw values at the neighbours of the image's own pixels."""
        return at(x, dy, dx)

    # Sums of absolute differences: across rows, along rows, and along both diagonals. Red and blue pixels take the wide
    # sums, which have more differences.
    rising, falling = 2 * A(near(-1, 1) - near(1, -1)), 2 * A(near(-1, -1) - near(1, 1))
    across = full_size(A(near(-1, -1) - near(1, -1)) + 2 * A(near(-1, 0) - near(1, 0)) + A(near(-1, 1) - near(1, 1)))
    along = full_size(A(near(-1, -1) - near(-1, 1)) + 2 * A(near(0, -1) - near(0, 1)) + A(near(1, -1) - near(1, 1)))
    rising_wide = full_size(rising + A(near(-1, 0) - near(0, -1)) + A(near(1, 0) - near(0, 1)))
    falling_wide = full_size(falling + A(near(-1, 0) - near(0, 1)) + A(near(1, 0) - near(0, -1)))
    rising, falling = full_size(rising), full_size(falling)
    greens = full_size((near(-1, 0) + near(0, -1) + near(0, 1) + near(1, 0)) >> 1)

    blue, red, blue_row = _colours((H, W), y0, x0, 2)
    green = ~(blue | red)

    def diagonal(dy: int, dx: int) -> np.ndarray:
        """The gradients in a diagonal direction."""
        narrow, wide = (rising, rising_wide) if dy != dx else (falling, falling_wide)
        of_green = at(narrow, 0, 0) + at(narrow, dy, 0) + at(narrow, 0, dx) + at(narrow, dy, dx)
        return np.where(green, of_green, at(wide, 0, 0) + at(wide, dy, dx))

    # For each direction: the gradient, and three estimates, each twice the mean of one colour there. The colours are
    # the pixel's own; green (at a green pixel, the other colour of its row); and the third one.
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
        own_colour = np.where(green, 2 * p(dy, dx), p(2 * dy, 2 * dx) + p(0, 0))
        second = np.where(green, p(2 * dy, dx) + p(0, dx), at(greens, dy, dx))
        directions.append(
            (diagonal(dy, dx), own_colour, second, np.where(green, p(dy, 0) + p(dy, 2 * dx), 2 * p(dy, dx)))
        )

    # The directions whose gradient is below this threshold count.
    gradients_by_direction, *estimates = zip(*directions)
    gradients = np.stack(gradients_by_direction)
    chosen = gradients < gradients.min(axis=0) + np.maximum(gradients.max(axis=0) >> 1, 1)
    own_colour, second, third = (
        sum(np.where(is_chosen, value, 0) for is_chosen, value in zip(chosen, values)) for values in estimates
    )
    count = chosen.sum(axis=0)
    share = np.float32(0.5) / count.astype(np.float32)
    # The sums are twice the mean, so that the share of each is 0.5 / count. OpenCV has a rounded constant, 1 / 14, for
    # seven directions, in the columns that it does not compute eight at a time: before `start`, and from `vectors` on.
    start = np.where(green[:, :1], 3, 2)
    columns, vectors = np.arange(2, W - 2), start + 8 * np.maximum(0, (W - 10 - start) // 8 + 1)
    share = np.where(((columns >= vectors) | (columns < start)) & (count == 7), np.float32(0.0714286), share)

    def corrected(sums: Any) -> np.ndarray:
        """Another colour of each pixel: its value, plus the mean difference of that colour to the pixel's own."""
        return p(0, 0) + np.rint((sums - own_colour).astype(np.float32) * share).astype(np.int64)

    # `a`: green, or at a green pixel the other colour of its row. `b`: the third colour.
    a, b = corrected(second), corrected(third)
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
