"""Mel frequency cepstral coefficients."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .columns import AlongAxis, check_floats


@functools.lru_cache(maxsize=64)
def cosines(n: int, count: int, kind: int, normalize: bool, lifter: float) -> np.ndarray:
    """The matrix ``float32[count, n]`` of the discrete cosine transform of a type, from 1 to 4, and of the lifter.

    Types are as in SciPy and FFTW, but without their factor of 2. With `normalize` the transform is orthogonal. The
    lifter scales coefficient k by ``1 + lifter / 2 * sin(pi * (k + 1) / lifter)``, as in HTK.
    """
    k, i = np.arange(count)[:, None], np.arange(n)
    if kind == 1:
        matrix = np.cos(np.pi * k * i / (n - 1)) * np.where((i == 0) | (i == n - 1), 0.5, 1)
    elif kind == 2:
        matrix = np.cos(np.pi * k * (2 * i + 1) / (2 * n))
    elif kind == 3:
        matrix = np.cos(np.pi * i * (2 * k + 1) / (2 * n)) * np.where(i == 0, 0.5, 1)
    else:
        matrix = np.cos(np.pi * (2 * k + 1) * (2 * i + 1) / (4 * n))
    if normalize:
        # The constant function (k = 0 in type 2, i = 0 in type 3) has another norm than the cosines.
        frequency = {2: k, 3: i}.get(kind, np.ones(1))
        matrix *= np.sqrt(2 / max(n, 1)) * np.where(frequency == 0, {2: np.sqrt(0.5), 3: np.sqrt(2)}.get(kind, 1), 1)
    if lifter:
        matrix *= 1 + lifter / 2 * np.sin(np.pi * (k + 1) / lifter)
    return matrix.astype(np.float32)


class MFCC(AlongAxis):
    """Multiplies the vectors along an axis by the matrix of `cosines`."""

    name = "mfcc"
    n_mfcc: int  # the number of coefficients that are kept
    dct_type: int  # 1 to 4
    normalize: bool  # whether the transform is orthogonal
    axis: int  # the axis that is transformed
    lifter: float  # of the scale of the coefficients, see `cosines`; 0: they are not scaled

    def __post_init__(self):
        if self.dct_type == 1 and self.normalize:
            raise ArgumentError("argument normalize must be False with dct_type=1")

    def check(self, x: Spec) -> None:
        """Raises an error unless the input is float32 and has the axis, with two elements or more for type 1."""
        check_floats(x)
        if self.axis >= x.ndim:
            raise ArgumentError(
                f"argument axis must be less than the input's number of dimensions {x.ndim}, got {self.axis}"
            )
        if self.dct_type == 1 and x.extent(self.axis) in (0, 1):
            raise ArgumentError(f"with dct_type=1 the axis must have more than one element, got {x.extent(self.axis)}")

    def axis_of(self, x: Spec) -> int:
        return self.axis

    def length(self, n: int) -> int:
        return min(self.n_mfcc, n)

    def vectors(self, xp: Any, x: Any) -> Any:
        n = x.shape[-1]
        if self.dct_type == 1 and n < 2:
            raise ArgumentError(f"with dct_type=1 the axis must have more than one element, got {n}")
        matrix = cosines(n, self.length(n), self.dct_type, self.normalize, self.lifter)
        return xp.matmul(x, matrix.T, **({} if xp is np else {"precision": "highest"}))


@operator_function(MFCC)
def mfcc(
    input: Input,
    /,
    *,
    n_mfcc: Annotated[int, Range(1)] = 20,
    dct_type: Annotated[int, Range(1, 4)] = 2,
    normalize: bool = False,
    axis: Annotated[int, Range(0)] = 0,
    lifter: float = 0.0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Mel frequency cepstral coefficients of mel spectrograms in decibels: a discrete cosine transform.

    Args:
      input: mel spectrograms, float32; usually ``[mels, frames]``.
      n_mfcc: how many coefficients are kept; at most as many as there are mels.
      dct_type: 1, 2, 3 or 4. Coefficients are half of those of ``scipy.fft.dct(x, dct_type)``.
      normalize: by an orthonormal basis, as ``scipy.fft.dct(x, dct_type, norm="ortho")``; not with `dct_type` 1.
      axis: the axis that is transformed.
      lifter: coefficient i is multiplied by ``1 + lifter / 2 * sin(pi * (i + 1) / lifter)``, as in librosa. DALI does
        the same, although its documentation has another formula. 0: nothing is.

    Returns:
      float32, with the coefficients along `axis`, of the input's layout.

    Raises:
      TypeError: the input is not float32.
      ArgumentError: there is no such axis, or `dct_type` 1 with `normalize` or with a single element.

    Example:
      >>> coefficients = fn.mfcc(fn.to_decibels(mel, cutoff_db=-80), n_mfcc=13, normalize=True, lifter=22)
    """
    ...
