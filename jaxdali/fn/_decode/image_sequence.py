"""Encoded images of sequences as the samples of a larger batch, for operators that read all images of a sample."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..._core.context import HostContext
from ..._core.frames import context_of_frames
from ..._core.ragged import Packed, pack
from ..._core.values import Spec, Value
from ..._cpu import Status
from . import info_rows
from .rows_of_files import file_of


@dataclasses.dataclass(frozen=True)
class ImageSlots:
    """Places for the images of a batch: K for each sample, of which the first ones are used. A sample that is one image
    has one place.

    Attributes:
      batch: the context of the batch.
      ctx: the context of a batch whose samples are the places. An error names the image of its sample.
      K: places of each sample, a power of two unless all samples have the same number, so that few programs are
        compiled.
      counts: ``i64[N]``, images of each sample.
    """

    batch: HostContext
    ctx: HostContext
    K: int
    counts: np.ndarray

    @staticmethod
    def of(ctx: HostContext, counts: np.ndarray, static_count: int | None) -> ImageSlots:
        """The places for sequences.

        Args:
          counts: ``i64[N]``, images of each sample.
          static_count: the number of images that all samples have; None: it differs.
        """
        inner = context_of_frames(ctx, counts, static_count, "image {} of the sample")
        return ImageSlots(ctx, inner, inner.frames, counts)

    @staticmethod
    def of_single(ctx: HostContext) -> ImageSlots:
        """The places for samples that are one image."""
        return ImageSlots(ctx, ctx, 1, np.ones(ctx.N, np.int64))

    @staticmethod
    def of_encoded(ctx: HostContext, encoded: Value) -> tuple[ImageSlots, Packed]:
        """The places for encoded images, or for sequences of them, and the files as the batch of the places."""
        if not info_rows.is_sequence(encoded.spec):
            return ImageSlots.of_single(ctx), info_rows.packed(ctx, encoded)
        slots = ImageSlots.of(ctx, encoded.shapes[:, 0], encoded.spec.extent(0))
        nothing = np.zeros(0, np.uint8)
        rows = [
            [file_of(row) for row in encoded.sample(i)] if is_present else []
            for i, is_present in enumerate(ctx.present.tolist())
        ]
        files = [r[k] if k < len(r) else nothing for r in rows for k in range(slots.K)]
        return slots, pack(files, slots.ctx.S, slots.ctx.empty)

    def repeated(self, value: Value, name: str, per_image: bool) -> Value:
        """An argument per sample as one per place.

        Args:
          name: of the argument.
          per_image: whether it may have a row for each image. A sample with another number of rows fails.
        """
        K, present = self.K, self.batch.present & (self.counts > 0)
        if not per_image or value.spec.ndim < 2:
            x = value.dense(f"argument {name}", self.batch.present)
            return Value(
                dataclasses.replace(value.spec, shape=x.shape[1:], layout="", dims=None),
                np.repeat(value.shapes, K, axis=0),
                np.repeat(x, K, axis=0),
            )
        width = int(value.shapes[present, 1].max(initial=1))
        x = np.ones((len(present), K, width), value.spec.dtype)
        for i in np.flatnonzero(present).tolist():
            rows = value.sample(i)
            if rows.shape == (self.counts[i], width):
                x[i, : len(rows)] = rows
            else:
                text = f"argument {name} has the shape {rows.shape}, and the sample {self.counts[i]} images: they must be equally many"
                self.batch.fail(i, Status.ARGUMENT, text)
        return Value(Spec(value.spec.dtype, 1, (width,)), np.full((len(x) * K, 1), width), x.reshape(-1, width))
