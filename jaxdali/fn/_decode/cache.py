"""Decoded images that are kept in memory, so that later epochs need not decode them."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import heapq
import re
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError

_UNITS = {unit: 1 << 10 * (k + 1) for k, unit in enumerate(("K", "M", "G", "T"))}


def parse_bytes(text: int | str) -> int:
    """A number of bytes, given as a number or with a unit such as "256MB" (powers of 1024, as DALI's megabytes)."""
    if isinstance(text, int):
        if text < 0:
            raise ArgumentError(f"cache must not be negative, got {text}")
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B\s*", text, re.IGNORECASE)
    if match is None:
        raise ArgumentError(f'cache must be a number of bytes, or one with a unit, as "256MB", got {text!r}')
    number, unit = match.groups()
    return int(float(number) * (_UNITS[unit.upper()] if unit else 1))


@dataclasses.dataclass(frozen=True)
class CacheOptions:
    """The limits of a cache.

    Attributes:
      limit: maximal size of all images together, in bytes.
      least: size of the smallest image that is kept, in bytes.
      policy: the action when the limit is reached: "" drops the least recently used images, "threshold" keeps no
        further image, "largest" drops smaller images.
    """

    limit: int
    least: int = 0
    policy: str = ""


class ImageCache:
    """Pixels of images, by their keys. Several threads may use it at the same time."""

    def __init__(self, options: CacheOptions):
        self._options = options
        self._images: collections.OrderedDict[Any, np.ndarray] = collections.OrderedDict()
        # Heap of (size, number, key), the smallest first, if smaller images are dropped. The number orders equal sizes.
        self._smallest: list[tuple[int, int, Any]] = []
        self._number = 0
        self._lock = threading.Lock()  # guards everything here
        self.nbytes = 0  # of all images

    def get(self, key: Any) -> np.ndarray | None:
        """The pixels; None if the cache does not hold them."""
        with self._lock:
            if key in self._images:
                self._images.move_to_end(key)
            return self._images.get(key)

    def admits(self, nbytes: int) -> bool:
        """Whether an image of this many bytes would be kept."""
        o = self._options
        if not o.least <= nbytes <= o.limit:
            return False
        with self._lock:
            # Policy "largest": it would be kept in place of the smallest image, the first one of the heap.
            fits = self.nbytes + nbytes <= o.limit
            return fits or o.policy == "" or (o.policy == "largest" and self._smallest[0][0] < nbytes)

    def put(self, key: Any, pixels: np.ndarray):
        """Keeps an image that the policy admits, and drops others if the limit would be exceeded."""
        o = self._options
        with self._lock:
            if key in self._images or not o.least <= pixels.nbytes <= o.limit:
                return
            # The first image of `_images` is the least recently used one; the first of `_smallest` is the smallest, of
            # which element 0 is the size.
            while self.nbytes + pixels.nbytes > o.limit:
                if o.policy == "threshold" or (o.policy == "largest" and self._smallest[0][0] >= pixels.nbytes):
                    return
                if o.policy == "largest":
                    _, _, dropped_key = heapq.heappop(self._smallest)
                else:
                    dropped_key = next(iter(self._images))
                self.nbytes -= self._images.pop(dropped_key).nbytes
            self._images[key] = pixels
            self.nbytes += pixels.nbytes
            if o.policy == "largest":
                self._number += 1
                heapq.heappush(self._smallest, (pixels.nbytes, self._number, key))


class CacheUse:
    """A decoder's use of the cache, which all decoders of the process with the same options share.

    The cache lives as long as one of these objects.
    """

    def __init__(self, options: CacheOptions):
        with _lock:
            self.cache = _caches.get(options) or _caches.setdefault(options, ImageCache(options))
        self._hits = self._misses = 0

    def get(self, key: Any) -> np.ndarray | None:
        """The pixels; None if the cache does not hold them. Counts the hits."""
        pixels = self.cache.get(key)
        self._hits += pixels is not None
        return pixels

    def keep(self, images: Mapping[Any, np.ndarray]):
        """Adds images that had to be decoded."""
        self._misses += len(images)
        for key, pixels in images.items():
            self.cache.put(key, pixels)

    def counts(self) -> dict[str, int]:
        """The number of images that the cache served and of those decoded for it, and the bytes that it holds now."""
        return {"hits": self._hits, "misses": self._misses, "bytes": self.cache.nbytes}


_caches: weakref.WeakValueDictionary[CacheOptions, ImageCache] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # guards `_caches`


def digest(encoded: np.ndarray) -> bytes:
    """The key of a file, made from its bytes. A file that changes gets another key."""
    return hashlib.sha256(encoded.data).digest()
