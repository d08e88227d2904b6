"""Sums, means, extremes and deviations over axes of each sample."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ..._core.declaration import DType, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ._reduction import Max, Mean, MeanSquare, Min, Rms, StdDev, Sum, Variance


@operator_function(Sum)
def sum(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Sums elements over axes.

    Computed in double precision, unlike DALI's: a sum of 64-bit integers beyond their range saturates and does not wrap.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      dtype: element type of the result. Default: UINT64, INT64 or FLOAT, as the input is unsigned, signed or of floats. With an integer
        type of fewer bits, sums wrap, as in DALI.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The sums.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(Mean)
def mean(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Averages elements over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      dtype: element type of the result. Default: FLOAT. With an integer type, sums wrap and means are cut, as in DALI.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The means.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(Min)
def min(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Finds the least element over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The least elements, of the input's type.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(Max)
def max(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Finds the greatest element over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The greatest elements, of the input's type.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(MeanSquare)
def mean_square(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Averages the squares of elements over axes.

    Computed in double precision, unlike DALI's, where squares of uint16 and of wider integers overflow.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      dtype: element type of the result. Default: FLOAT.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The means of the squares.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(Rms)
def rms(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Computes the root mean square over axes.

    Computed in double precision, unlike DALI's, where squares of uint16 and of wider integers overflow.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      dtype: element type of the result. Default: FLOAT.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      The roots.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(Variance)
def variance(
    data: Input,
    mean: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    ddof: Annotated[int, Range(0)] = 0,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Computes the variance about a given mean over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      mean: of each result, of the result's shape.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      ddof: what is subtracted from the number of elements in the divisor. If it is more than their number, the result is negative.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      FLOAT variances.

    Raises:
      ValueError: wrong axes.
    """
    ...


@operator_function(StdDev)
def std_dev(
    data: Input,
    mean: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    ddof: Annotated[int, Range(0)] = 0,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Computes the standard deviation from a given mean over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      mean: of each result, of the result's shape.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      ddof: what is subtracted from the number of elements in the divisor. If it is more than their number, the result is NaN.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      FLOAT deviations.

    Raises:
      ValueError: wrong axes.
    """
    ...
