"""`BatchWithMetadata`: the form of batches that have metadata."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._core.graph import DataNode
from .._tensors.thumbnails import SHOWN, page_of


class BatchWithMetadata(dict[str, Any]):
    """A batch of which some entries are metadata: lists of Python objects, one for each row.

    Args:
      entries: names and values of all entries.
      metadata: the names of those that are metadata.
    """

    def __init__(self, entries: Iterable[tuple[str, Any]], metadata: frozenset[str]):
        super().__init__(entries)
        self._metadata = metadata

    @property
    def arrays(self) -> dict[str, Any]:
        """The batch without metadata, a plain dict: for `jax.device_put`, and for functions that JAX compiles."""
        return {name: x for name, x in self.items() if name not in self._metadata}

    @property
    def metadata(self) -> dict[str, list[Any]]:
        """The entries that are metadata."""
        return {name: x for name, x in self.items() if name in self._metadata}

    def _repr_html_(self) -> str:
        """The form in notebooks: the first images of each entry that has images, and the text of all others."""
        parts = []
        for name, x in self.items():
            first = [] if name in self._metadata else [np.asarray(row) for row in x[:SHOWN]]
            parts.append(page_of(name, first, "", len(x)) or f"<div>{html.escape(f'{name}: {x!r}')}</div>")
        return "".join(parts)

    def copy(self) -> BatchWithMetadata:
        """A shallow copy."""
        return BatchWithMetadata(self.items(), self._metadata)


def metadata_among(names: Sequence[str], outputs: Sequence[DataNode]) -> frozenset[str]:
    """The names of those outputs that are metadata."""
    return frozenset(name for name, x in zip(names, outputs) if x.metadata is not None)


def batch_of(entries: Iterable[tuple[str, Any]], metadata: frozenset[str]) -> dict[str, Any]:
    """A batch: a plain dict, unless some of its entries are metadata."""
    return BatchWithMetadata(entries, metadata) if metadata else dict(entries)


def arrays_of(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch without its metadata."""
    return batch.arrays if isinstance(batch, BatchWithMetadata) else batch
