"""The operators of `decoders.image_patches`: from files to patches in one native call, all images of a sample in a row
of the result.

`PatchHeaders` parses the headers of all images on the host, and knows from them where the patches of each image stand.
`DecodePatches` decodes, resizes and cuts in the program. Each image is a sample of that native call, which writes its
patches into their place. Both consist of the operators of `decoders.image`, `resize` and `patchify`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import _cpu
from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext, Out
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Packed, Ragged
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.layouts import spec_of
from .._image.patchify import DensePatches, PatchGrid, Patchify, PatchPositions, PatchSegments
from .._image.resize import Resize
from . import info_rows
from .decode import DecodeImage
from .headers import ImageHeaders
from .image_sequence import ImageSlots

# Columns of the values that `PatchHeaders` makes for each image, behind those of `_cpu.Info`: the place of its file in
# the bytes of the sample, in units of `ALIGNMENT`, and its size.
OFFSET, SIZE = _cpu.INFO_COLUMNS, _cpu.INFO_COLUMNS + 1
NUM_COLUMNS = _cpu.INFO_COLUMNS + 2


class DecodeForPatches(DecodeImage):
    """The decoder, whose errors give no advice about arguments that only `decoders.image` has."""

    def failure(self, row: np.ndarray, code: int, reason: str = "") -> str:
        return super().failure(row, code, reason).removesuffix('; on_error="replace" replaces the sample')


class _OfImages(Operator):
    """The steps of the work, which both operators share, and the values between them.

    Attributes:
      decode, resize, patchify: the steps.
    """

    name = "decoders.image_patches"
    takes_sequences = True
    decode: DecodeForPatches
    resize: Resize
    patchify: Patchify

    def resized_specs(self, arguments: Sequence[Spec]) -> tuple[Spec, Spec]:
        """The specs of a decoded image, and of a resized one.

        Args:
          arguments: of the arguments of the resize that come per sample.
        """
        nothing = Spec(np.dtype(np.uint8), 1, None)
        (decoded,) = self.decode.infer(nothing, nothing, nothing)
        # Sizes per image have a row for each.
        of_images = [
            Spec(
                s.dtype,
                s.ndim - 1,
                None if s.shape is None else s.shape[1:],
                "",
                None if s.dims is None else s.dims[1:],
            )
            if name == "size" and s.ndim == 2
            else s
            for name, s in zip(self.resize.args.inputs, arguments, strict=True)
        ]
        (resized,) = self.resize.infer(decoded, *of_images)
        return decoded, resized

    def resized(
        self, slots: ImageSlots, info: np.ndarray, arguments: Sequence[Value], specs: tuple[Spec, Spec]
    ) -> tuple[Setup, Setup, Value]:
        """The set-up of decoder and resize, and the resized images, of which only the shapes are known.

        Args:
          info: rows of `_cpu.Info` of all images.
          arguments: of the resize, one for each image.
          specs: of decoded and resized images.
        """
        decoded, resized = specs
        rows = Value(Spec(np.dtype(np.int32), 1, info.shape[1:]), np.full((len(info), 1), info.shape[1]), info)
        decode_setup = self.decode.setup(dataclasses.replace(slots.ctx, specs=(decoded,)), rows, rows, rows)
        (shapes,) = decode_setup.shapes
        assert shapes is not None
        ctx = dataclasses.replace(slots.ctx, specs=(resized,))
        resize_setup = self.resize.setup(ctx, Value(decoded, shapes), *arguments)
        (shapes,) = resize_setup.shapes
        if shapes is None:
            shapes = np.broadcast_to(np.array(resized.shape, np.int64), (len(info), resized.ndim))
        return decode_setup, resize_setup, Value(resized, shapes)


class PatchHeaders(_OfImages, HostOperator):
    """Parses the headers of encoded images, or of sequences of them, and decodes what the kernels can't decode.

    The inputs are the files, then the arguments of the resize. The outputs are the bytes that the program decodes, the
    grid of each image's patches, and `NUM_COLUMNS` numbers for each image.
    """

    headers: ImageHeaders

    @property
    def num_outputs(self) -> int:
        return 3

    def infer(self, encoded: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        try:
            info_rows.check_encoded(encoded)
        except TypeError as e:
            advice = "; of decoded images fn.resize and fn.patchify make patches" if encoded.ndim > 1 else ""
            raise TypeError(f"{e}{advice}") from None
        payload = Spec(np.dtype(np.uint8), 1, None)
        self.resized_specs(arguments)
        if not info_rows.is_sequence(encoded):
            return payload, Spec(np.dtype(np.int32), 1, (2,)), Spec(np.dtype(np.int32), 2, (1, NUM_COLUMNS))
        if self.patchify.length is None:
            raise ArgumentError(
                "sequences of images need the argument length, the number of rows that all images of a sample share"
            )
        n = encoded.extent(0)
        return payload, *(spec_of(np.dtype(np.int32), (n, k), layout) for k, layout in ((2, "F*"), (NUM_COLUMNS, "")))

    def run(self, ctx: HostContext, encoded: Value, *arguments: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`. An error names the image of its sample."""
        slots, files = ImageSlots.of_encoded(ctx, encoded)
        inner, K = slots.ctx, slots.K
        arguments = tuple(
            slots.repeated(v, name, per_image=info_rows.is_sequence(encoded.spec) and name == "size")
            for name, v in zip(self.resize.args.inputs, arguments, strict=True)
        )
        source, info, _ = self.headers.run(
            inner, Value(Spec(np.dtype(np.uint8), 1, None), files.shapes, files), *arguments
        )
        _, _, images = self.resized(slots, info, arguments, self.resized_specs([v.spec for v in arguments]))
        grid_spec = Spec(np.dtype(np.int32), 1, (2,))
        op = self.patchify
        sizes: Any = {n: getattr(op, n) for n in ("patch_size", "merge_size", "temporal_patch_size", "length")}
        (grids,) = PatchGrid(**sizes).run(dataclasses.replace(inner, specs=(grid_spec,)), images)
        grids[~inner.present] = 0  # places without an image
        self._check_totals(slots, grids)
        offsets, num_bytes = source.offsets.reshape(-1, K), source.shapes.reshape(-1, K)
        # The files of a sample stand one after another: they are one run of bytes.
        ends = np.where(num_bytes > 0, (offsets - offsets[:, :1]).astype(np.int64) * ALIGNMENT + num_bytes, 0)
        payload = Packed(source.data, np.ascontiguousarray(offsets[:, 0]), ends.max(axis=1)[:, None])
        columns = (offsets - offsets[:, :1]).reshape(-1, 1), num_bytes.reshape(-1, 1)
        rows = np.concatenate([info, *columns], axis=1).astype(np.int32).reshape(-1, K, NUM_COLUMNS)
        if not info_rows.is_sequence(encoded.spec):
            return payload, grids, rows
        grids = grids.reshape(-1, K, 2)
        if encoded.spec.extent(0) is not None:
            n = encoded.spec.extent(0)
            return payload, grids[:, :n], rows[:, :n]
        counts = np.where(ctx.present, slots.counts, 0).tolist()
        return payload, *([x[:n] for x, n in zip(values, counts, strict=True)] for values in (grids, rows))

    def _check_totals(self, slots: ImageSlots, grids: np.ndarray):
        """Fails the samples whose images have more patches together than the result has rows."""
        length = self.patchify.length
        if length is None or slots.K == 1:  # `PatchGrid` has checked single images
            return
        ends = grids.astype(np.int64).prod(axis=1).reshape(-1, slots.K).cumsum(axis=1)
        for i in np.flatnonzero(ends[:, -1] > length).tolist():
            k = int((ends[i] > length).argmax())
            earlier_tokens = int(ends[i, k - 1]) if k else 0
            rows, columns = grids[i * slots.K + k].tolist()
            slots.ctx.fail(
                i * slots.K + k,
                Status.TOO_LARGE,
                f"its {rows} x {columns} patches, and the {earlier_tokens} of the images before it, are more than length={length}, and "
                f"all {slots.counts[i]} images have {ends[i, -1]} (patch_size={self.patchify.patch_size}, "
                f"merge_size={self.patchify.merge_size})",
            )


class ImagePositions(PatchPositions):
    """The place of each patch in the grid of its image."""

    name = "decoders.image_patches"
    takes_sequences = True


class ImageSegments(PatchSegments):
    """The number of its image for each patch. The argument `segments` has a number for each image."""

    name = "decoders.image_patches"
    takes_sequences = True


class DecodePatches(_OfImages, NativeOperator):
    """Decodes, resizes and cuts the images of `PatchHeaders`.

    The inputs are its outputs, then the arguments of the resize, then those of the patches.
    """

    kernel = "resample"  # The work is done on the CPU, and no accelerator has this kernel.
    only_kernels = True

    def infer(self, payload: Spec, grid: Spec, info: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        num_sizes = len(self.resize.args.inputs)
        _, resized = self.resized_specs(arguments[:num_sizes])
        return self.patchify.infer(resized, grid, *arguments[num_sizes:])

    def setup(self, ctx: HostContext, payload: Value, grid: Value, info: Value, *arguments: Value) -> Setup:
        """The set-ups of all steps, with parameters ``[N, K, ...]``."""
        is_sequence = grid.spec.ndim == 2
        slots = ImageSlots.of(ctx, info.shapes[:, 0], info.spec.extent(0)) if is_sequence else ImageSlots.of_single(ctx)
        N, K = ctx.N, slots.K
        rows, grids = np.zeros((N, K, NUM_COLUMNS), np.int32), np.zeros((N, K, 2), np.int64)
        for i in np.flatnonzero(ctx.present & (slots.counts > 0)).tolist():
            rows[i, : slots.counts[i]] = info.sample(i)
            grids[i, : slots.counts[i]] = grid.sample(i)
        rows, tokens = rows.reshape(N * K, NUM_COLUMNS), grids.prod(axis=2)
        names = (*self.resize.args.inputs, *self.patchify.args.inputs)
        of_images = [
            slots.repeated(v, name, per_image=is_sequence and name == "size")
            for name, v in zip(names, arguments, strict=True)
        ]
        num_sizes = len(self.resize.args.inputs)
        sizes, statistics = of_images[:num_sizes], of_images[num_sizes:]
        specs = self.resized_specs([v.spec for v in sizes])
        decode, resize, images = self.resized(slots, np.ascontiguousarray(rows[:, : _cpu.INFO_COLUMNS]), sizes, specs)
        normalisation = self.patchify.normalisation(slots.ctx, images, self.patchify.arguments(slots.ctx, statistics))
        (decoded_shapes,) = decode.shapes
        assert decoded_shapes is not None
        params: dict[str, np.ndarray] = {
            "present": slots.ctx.present.astype(np.int32),
            "files": rows[:, [OFFSET, SIZE]],
            "decode.shapes": decoded_shapes.astype(np.int32),
            "resize.shapes": images.shapes.astype(np.int32),
        }
        for step, parameters in (("decode", decode.params), ("resize", resize.params), ("patchify", normalisation)):
            params |= {f"{step}.{name}": x for name, x in parameters.items()}
        if is_sequence:
            assert self.patchify.length is not None
            ends = tokens.cumsum(axis=1)
            place = np.stack([np.broadcast_to(np.arange(N)[:, None] % ctx.B, (N, K)), ends - tokens, ends], axis=2)
            with_images = np.flatnonzero(ctx.present & (slots.counts > 0))
            place[with_images, slots.counts[with_images] - 1, 2] = self.patchify.length  # zeros follow the last image
            params["patchify.place"] = np.where(slots.ctx.present[:, None], place.reshape(N * K, 3), 0).astype(np.int32)
        params = {name: x.reshape(N, K, *x.shape[1:]) for name, x in params.items()}
        if ctx.spec.shape is not None:
            return Setup((None,), params)
        channels = specs[1].extent(2)
        assert channels is not None
        return Setup((np.column_stack([tokens.sum(axis=1), np.full(N, self.patchify.pixels * channels)]),), params)

    def lower(self, ctx: LowerContext, payload: Ragged, *arguments: None) -> Any:
        """Makes one native call, whose samples are the images."""
        B, K = ctx.B, ctx.params["present"].shape[1]
        n = B * K
        params = {name: x.reshape(n, *x.shape[2:]) for name, x in ctx.params.items()}
        is_sequence = "patchify.place" in params
        offsets = jnp.repeat(payload.offsets, K, total_repeat_length=n) + params["files"][:, 0]
        files = Ragged(payload.data, offsets, params["files"][:, 1:])
        # In `control`, an image is present if its sample is, and has that image.
        present = jnp.repeat(ctx.control[1:], K, total_repeat_length=n) * params["present"]
        control = jnp.concatenate([ctx.control[:1], present])
        of_resize = ctx.inputs[3 : 3 + len(self.resize.args.inputs)]
        specs = (Spec(np.dtype(np.uint8), 1, None), *self.resized_specs(of_resize), ctx.spec)
        stages = []
        for k, (name, op) in enumerate((("decode", self.decode), ("resize", self.resize), ("patchify", self.patchify))):
            spec = specs[k + 1]
            out = (
                ctx.out[0] if k == 2 else None if spec.shape is not None else Out(0, offsets, params[f"{name}.shapes"])
            )
            of_stage = {key.removeprefix(f"{name}."): x for key, x in params.items() if key.startswith(f"{name}.")}
            stage = LowerContext(n, (specs[k],), (spec,), control, (out,), of_stage, times=ctx.times)
            stages.append((op.kernel, stage, op.call(stage)))
        patches, codes = _ffi.call_chain(files, stages, rows=B if is_sequence else None)
        # The first image of each sample that failed. Its number is a part of the status.
        status = jnp.stack(codes).sum(axis=0, dtype=jnp.int32).reshape(B, K)  # a sample fails in one stage at most
        first = jnp.argmax(status != 0, axis=1).astype(jnp.int32)
        code = jnp.take_along_axis(status, first[:, None], axis=1)[:, 0]
        return (patches,), jnp.where(code != 0, code + first * np.int32(_cpu.STATUSES_OF_STAGE), 0)

    def reason(self, setup: Setup, i: int, code: int) -> str:
        k, code = divmod(code, _cpu.STATUSES_OF_STAGE)
        text = self.decode.failure(setup.params["decode.info"][i, k], code)
        return f"image {k} of the sample: {text}" if "patchify.place" in setup.params else text

    def divided(self, spec: Spec, out: Spec) -> tuple[NativeOperator, ProgramOperator] | None:
        """The CPU makes patches of bytes. The accelerator normalises and converts them."""
        if out.shape is None:
            return None
        bytes_only = dataclasses.replace(self.patchify, dtype=np.dtype(np.uint8), normalises=False)
        return dataclasses.replace(self, patchify=bytes_only), DensePatches(patchify=self.patchify, cuts=False)
