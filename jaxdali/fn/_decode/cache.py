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
    """Bytes: a number, or one with a unit, as "256MB" (powers of 1024, as DALI's megabytes)."""
    if isinstance(text, int):
        if text < 0:
            raise ArgumentError(f"cache must not be negative, got {text}")
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B\s*", text, re.IGNORECASE)
    if found is None:
        raise ArgumentError(f'cache must be a number of bytes, or one with a unit, as "256MB", got {text!r}')
    number, unit = found.groups()
    return int(float(number) * (_UNITS[unit.upper()] if unit else 1))


@dataclasses.dataclass(frozen=True)
class CacheOptions:
    """What is kept.

    Attributes:
      limit: bytes of all images together.
      least: bytes of an image that is kept.
      policy: what happens when the limit is reached: "" (those not used for the longest time go), "threshold" (nothing is kept any
        more), "largest" (smaller ones go).
    """

    limit: int
    least: int = 0
    policy: str = ""


class ImageCache:
    """Pixels of images, by what tells them apart. Several threads may use it."""

    def __init__(self, options: CacheOptions):
        self._options = options
        self._images: collections.OrderedDict[Any, np.ndarray] = collections.OrderedDict()
        self._smallest: list[tuple[int, int, Any]] = []  # heap of size, number and key, where smaller ones go
        self._number = 0
        self._lock = threading.Lock()
        self.nbytes = 0

    def get(self, key: Any) -> np.ndarray | None:
        """Pixels; None: they are not there, or not any more."""
        with self._lock:
            if key in self._images:
                self._images.move_to_end(key)
            return self._images.get(key)

    def takes(self, nbytes: int) -> bool:
        """Whether an image of this many bytes would be kept."""
        o = self._options
        if not o.least <= nbytes <= o.limit:
            return False
        with self._lock:
            room = self.nbytes + nbytes <= o.limit
            return room or o.policy == "" or (o.policy == "largest" and self._smallest[0][0] < nbytes)

    def put(self, key: Any, pixels: np.ndarray):
        """Keeps an image that it takes, and lets go of others where the limit would be passed."""
        o = self._options
        with self._lock:
            if key in self._images or not o.least <= pixels.nbytes <= o.limit:
                return
            while self.nbytes + pixels.nbytes > o.limit:
                if o.policy == "threshold" or (o.policy == "largest" and self._smallest[0][0] >= pixels.nbytes):
                    return
                first = heapq.heappop(self._smallest)[2] if o.policy == "largest" else next(iter(self._images))
                self.nbytes -= self._images.pop(first).nbytes
            self._images[key] = pixels
            self.nbytes += pixels.nbytes
            if o.policy == "largest":
                self._number += 1
                heapq.heappush(self._smallest, (pixels.nbytes, self._number, key))


class CacheUse:
    """A decoder's use of the cache that it shares with all decoders of the process of the same options.

    The cache lives as long as one of them.
    """

    def __init__(self, options: CacheOptions):
        with _lock:
            self.cache = _caches.get(options) or _caches.setdefault(options, ImageCache(options))
        self._hits = self._misses = 0

    def get(self, key: Any) -> np.ndarray | None:
        """What is there."""
        pixels = self.cache.get(key)
        self._hits += pixels is not None
        return pixels

    def keep(self, images: Mapping[Any, np.ndarray]):
        """Puts there what had to be decoded."""
        self._misses += len(images)
        for key, pixels in images.items():
            self.cache.put(key, pixels)

    def counts(self) -> dict[str, int]:
        """How many images were there, how many were decoded to be kept, and the bytes of all that are there now."""
        return {"hits": self._hits, "misses": self._misses, "bytes": self.cache.nbytes}


_lock = threading.Lock()
_caches: weakref.WeakValueDictionary[CacheOptions, ImageCache] = weakref.WeakValueDictionary()


def digest(encoded: np.ndarray) -> bytes:
    """What tells a file from all others: its bytes, wherever they come from. A file that changes becomes another."""
    return hashlib.sha256(encoded.data).digest()
