"""The samples of a pixel, as the first directory of a TIFF file describes them (TIFF 6.0, section 2, and BigTIFF)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

# Bytes of a whole number, by its type: BYTE, SHORT, LONG, the same with a sign, IFD, LONG8, SLONG8 and IFD8.
_SIZES = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 13: 4, 16: 8, 17: 8, 18: 8}
_KINDS = {1: "unsigned", 2: "signed", 3: "floating-point", 5: "complex integers", 6: "complex"}  # of samples
MOST_SAMPLES_OF_PILLOW = 6  # with more, Pillow writes to the log
_MOST_ENTRIES = 65535  # of a directory, as in the native header parser


def numbers(data: bytes | memoryview, tags: Collection[int]) -> Iterator[tuple[int, int | None]]:
    """Each entry of these tags in the first directory: the tag, and its first value without the sign.

    The value is None if it is no whole number, or lies outside of the file. Raises EOFError if the directory does, or
    has more entries than one of TIFF 6.0 can have.
    """
    order = "little" if data[:2] == b"II" else "big"

    def read(offset: int, size: int) -> int:
        if offset + size > len(data):
            raise EOFError
        return int.from_bytes(data[offset : offset + size], order)

    is_big = read(2, 2) == 43
    # Bytes: place of the directory's offset, and sizes of an offset, of the number of entries, and of an entry.
    start, offset_size, count_size, entry_size = (8, 8, 8, 20) if is_big else (4, 4, 2, 12)
    directory = read(start, offset_size)
    count = read(directory, count_size)
    if count > _MOST_ENTRIES:
        raise EOFError
    for k in range(count):
        entry = directory + count_size + entry_size * k
        tag = read(entry, 2)
        if tag in tags:
            size, place = _SIZES.get(read(entry + 2, 2), 0), entry + 4 + offset_size
            # Values that do not fit into the entry stand elsewhere.
            if size * read(entry + 4, offset_size) > offset_size:
                place = read(place, offset_size)
            yield tag, read(place, size) if size and place + size <= len(data) else None


class Samples(NamedTuple):
    """The samples of a pixel. The names are those of the tags.

    Attributes:
      bits: of a sample, BitsPerSample.
      photometric: PhotometricInterpretation: 0 is WhiteIsZero, 1 BlackIsZero, 2 RGB; -1: the file does not say.
      count: SamplesPerPixel.
      planar: PlanarConfiguration: 2 is a plane for each sample.
      extra: the first of the ExtraSamples: 1 and 2 are alpha, 0 is anything else; -1: the file does not say.
      kind: SampleFormat: 1 is unsigned, 2 signed, 3 floating-point.
      slices: of a volume, ImageDepth or TileDepth.
      repeated: number of one of these tags that has several entries whose values differ; 0: there is none.
    """

    bits: int = 1
    photometric: int = -1
    count: int = 1
    planar: int = 1
    extra: int = -1
    kind: int = 1
    slices: int = 1
    repeated: int = 0

    @classmethod
    def of(cls, data: bytes | memoryview) -> Samples:
        """Reads those of a file. Raises EOFError if its directory is not whole."""
        names = {258: "bits", 262: "photometric", 277: "count", 284: "planar", 338: "extra", 339: "kind"}
        names |= {32997: "slices", 32998: "slices"}
        values, repeated = dict[int, int | None](), 0
        for tag, value in numbers(data, names):
            if values.setdefault(tag, value) != value:
                repeated = tag
        fields = dict[str, int]()
        for tag, value in values.items():
            if value is not None:
                fields[names[tag]] = max(value, fields.get(names[tag], 0))  # of the two tags of slices
        return cls(**fields, repeated=repeated)

    @property
    def channels(self) -> int:
        """How many channels the native header parser counts: all samples of gray and RGB, and 3 of other colours."""
        is_colour = self.photometric == 3 or self.photometric >= 5
        return 3 if is_colour else max(self.count, 3 if self.photometric == 2 else 1)

    @property
    def are_common(self) -> bool:
        """Whether Pillow decodes them all, if they have at most 8 bits: one, RGB, alpha, and other colours."""
        if self.photometric == 2:  # Pillow takes a fourth sample of which the file says nothing as alpha
            return self.count <= 3 or (self.count == 4 and self.extra != 0)
        has_alpha = self.count == 2 and self.extra in (1, 2) and self.photometric == 1 and self.planar != 2
        return self.photometric > 2 or self.count <= 1 or has_alpha

    def __str__(self) -> str:
        kind = _KINDS.get(self.kind, "of no type")
        return f"{self.count} of {self.bits} bits, {kind}, photometric interpretation {self.photometric}"

    @property
    def refusal(self) -> str:
        """The reason if they can't be decoded."""
        return f"the samples of a pixel ({self}) are not supported; a decoder for them can be registered"
