"""io.file.read: files whose paths are data."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from ...._core.context import HostContext
from ...._core.graph import DataNode
from ...._core.operator import HostOperator
from ...._core.operator_function import Hints, Input, operator_function
from ...._core.values import Spec, Value
from ...._cpu import Status
from ...._data.files import Files
from ...._data.storage import Storage, Store


class ReadPaths(HostOperator):
    """Reads the files that the input names."""

    name: ClassVar[str] = "io.file.read"

    storage: Storage | None

    @functools.cached_property
    def _store(self) -> Store:
        return Store(self.storage)

    def infer(self, paths: Spec) -> tuple[Spec, ...]:
        if paths.ndim != 1 or paths.dtype not in (np.dtype(np.uint8), np.dtype(np.int8)):
            raise TypeError(f"the input must be paths as 1-D uint8, got {paths.ndim}-D {paths.dtype}")
        return (Spec(np.dtype(np.uint8), 1, None),)

    def run(self, ctx: HostContext, paths: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`: the contents of the files."""
        present = np.flatnonzero(ctx.present).tolist()
        names = [b""] * ctx.N
        for i in present:
            # Strings that end with a zero byte, as in C, are accepted.
            names[i] = paths.sample(i).tobytes().partition(b"\0")[0]
        files = Files("", names, self._store)
        # Local files are read natively, all at once.
        if not files.remote:
            return (Files.read_batch(ctx, [(files, np.arange(ctx.N))]),)
        files.ahead(np.array(present), len(present))
        samples = [np.zeros(0, np.uint8)] * ctx.N
        for i in present:
            try:
                samples[i] = np.frombuffer(files.read(i), np.uint8)
            except OSError as e:
                ctx.fail(i, Status.READ_ERROR, f"{e.filename}: {e.strerror}")
        return (samples,)


class ReadHints(Hints, total=False):
    """How DALI accesses local files."""

    dont_use_mmap: bool | None
    use_o_direct: bool | None


@operator_function(ReadPaths)
def read(
    filepaths: Input,
    /,
    *,
    storage: Storage | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ReadHints],
) -> DataNode:
    """Reads whole files whose paths are data, for example from an `external_source` or a reader.

    Args:
      filepaths: a path for each sample, 1-D uint8: ``np.frombuffer(path.encode(), np.uint8)``. A host value. Everything
        from the first zero byte on is ignored.
      storage: how URLs are read, a `jaxdali.Storage` (not in DALI). Paths may be URLs, which may lead anywhere, so pass
        none from untrusted sources. The URLs of a batch are fetched at the same time; none are fetched ahead, as the
        next ones are not known.

    Returns:
      The contents, 1-D uint8. A host value.

    Raises:
      TypeError: the input is not 1-D uint8.
      SampleError: a file can't be read.

    Unlike DALI, this reads empty files, too.

    Example:
      >>> paths = fn.external_source(lambda i: np.frombuffer(names[i.idx_in_epoch].encode(), np.uint8), batch=False)
      >>> images = fn.decoders.image(fn.io.file.read(paths))
    """
    ...
