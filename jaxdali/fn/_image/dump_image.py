"""dump_image: images written to files, to look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import SampleOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Value


class DumpImage(SampleOperator):
    """Writes each sample to a file PPM or PGM, and passes it on."""

    name = "dump_image"
    suffix: str  # a part of the files' names
    input_layout: str

    @property
    def preserved(self) -> bool:
        return True

    def layout_of(self, i: int, ndim: int) -> str:
        return self.input_layout

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """Writes the samples that are present, and returns copies of them; None for the others."""
        (images,) = inputs
        samples: list[np.ndarray | None] = [None] * ctx.N
        for i in np.flatnonzero(ctx.present).tolist():
            x = samples[i] = np.array(images.sample(i))
            if x.dtype != np.uint8 or x.ndim != 3 or x.shape[2] not in (1, 3):
                raise ValueError(
                    f"the input must be uint8 images HWC of 1 or 3 channels, got {x.dtype} of shape {x.shape}"
                )
            # The number of the sample in the batch of all shards.
            number = ctx.shard_ids[i // ctx.B] * ctx.B + i % ctx.B
            # The last number of DALI's names is always 0 here.
            with open(f"{number}-{self.suffix}-0.ppm", "wb") as f:
                # P5 is the format of gray images, P6 that of RGB.
                f.write(b"P%d\n%d %d\n255\n" % (5 if x.shape[2] == 1 else 6, x.shape[1], x.shape[0]) + x.tobytes())
        return [samples]


@operator_function("dump_image")
def dump_image(
    input: Input,
    /,
    *,
    suffix: str = "",
    input_layout: Literal["HWC"] = "HWC",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Writes images to files ``{sample}-{suffix}-0.ppm`` in the current directory, for debugging.

    Each batch overwrites the one before.

    Differs from DALI: the files are binary PPM (PGM for gray images), they are written even if the result is not used,
    and inputs may be on the accelerator.

    Args:
      input: uint8 images, HWC of 1 or 3 channels.
      suffix: part of the files' names.
      input_layout: "HWC".
      device: with "gpu", the result is put on the accelerator. The host writes the files in any case.

    Returns:
      The images.

    Raises:
      OperatorError: the input has another type or shape, or a file can't be written.

    Example:
      >>> images = fn.dump_image(images, suffix="before")
    """
    result = add(DumpImage(suffix=suffix, input_layout=input_layout), input, name=name)
    return result.gpu() if device == "gpu" else result
