"""The pictures that libraries decode for an image, where they may be larger than the image's header says.

A library decodes the frames of an AVIF file at the size that the AV1 stream gives them, and then scales them to the
size in the container. It decodes the tiles of a TIFF file as a whole, also beyond the image.

The time is linear in the size of a file, also of a damaged one: what is read of a box lies within it, and `_Uses` counts
what many boxes may share. Where libraries may differ in what they take of a file, because it says something twice, the
file counts as damaged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..._core.ffi import STATUS
from ..._cpu import Format, Status
from . import tiff
from .formats import DecodeError

FORMATS = (Format.AVIF, Format.TIFF)


class CodedPicture(NamedTuple):
    """A picture that is decoded.

    Attributes:
      kind: what it is, for messages.
      width, height: its extents.
      samples: numbers of a pixel.
      is_float: whether they are floats of 32 bits.
    """

    kind: str
    width: int
    height: int
    samples: int = 1
    is_float: bool = False

    @property
    def pixels(self) -> int:
        """Its number of pixels. More than 4 samples are counted as further pixels, and each float is counted as 4."""
        return self.width * self.height * (self.samples if self.is_float else -(-self.samples // 4))


def largest_picture(data: bytes | memoryview, kind: int) -> CodedPicture:
    """The largest picture that is decoded for a file of one of `FORMATS`. Raises `DecodeError` if it is damaged."""
    data = memoryview(data)  # whose parts are not copies
    try:
        pictures = _pictures_of_avif(data) if kind == Format.AVIF else _pictures_of_tiff(data)
        return max(pictures, key=lambda p: p.pixels)
    except (EOFError, ValueError, LookupError):  # numbers lead outside of the file, or something is there twice
        raise DecodeError(Status.TRUNCATED, STATUS[Status.TRUNCATED]) from None


def _number(data: bytes | memoryview, offset: int, size: int) -> int:
    """An unsigned integer. Raises EOFError if the data end before it does."""
    if offset + size > len(data):
        raise EOFError
    return int.from_bytes(data[offset : offset + size])


# --- TIFF ------------------------------------------------------------------------------------------------------------


def _pictures_of_tiff(data: memoryview) -> Iterator[CodedPicture]:
    """The image of the first directory, and one of its tiles (TIFF 6.0, section 15)."""
    # Of ImageWidth, ImageLength, BitsPerSample, SamplesPerPixel, RowsPerStrip, TileWidth and TileLength: the largest
    # value, as libraries differ in which entry of a tag they take.
    largest = {256: 0, 257: 0, 258: 1, 277: 1, 278: 0, 322: 0, 323: 0}
    for tag, value in tiff.numbers(data, largest):
        if value is None:
            raise EOFError
        largest[tag] = max(largest[tag], value)
    width, height, bits, samples, rows, tile_width, tile_height = largest.values()
    is_float, detail = bits > 16, " of floats" if bits > 16 else ""  # wider integers are refused
    yield CodedPicture(f"the image{detail} has", width, height, samples, is_float)
    if tile_width or tile_height:  # libtiff takes a missing extent from the strips
        yield CodedPicture(f"its tiles{detail} have", tile_width or width, tile_height or rows, samples, is_float)


# --- AVIF ------------------------------------------------------------------------------------------------------------


def _boxes(data: memoryview, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes of ISO/IEC 14496-12 in a part of a file: type, and begin and end of the content."""
    while begin + 8 <= end:
        size, name, header_size = _number(data, begin, 4), bytes(data[begin + 4 : begin + 8]), 8
        if size == 1:
            size, header_size = _number(data, begin + 8, 8), 16
        box_end = min(begin + size, end) if size else end
        if box_end < begin + header_size:  # damaged: no box ends within its header
            raise EOFError
        yield name, begin + header_size, box_end
        begin = box_end


class _Uses:
    """Counts the parts of a file that are taken, and their bytes. Raises DecodeError if they are too many.

    A file may name a part several times, which multiplies the work; encoders make no such files.
    """

    def __init__(self, data: memoryview):
        self._data, self._left = data, 2 * len(data)

    def part(self, begin: int, size: int, source: memoryview | None = None) -> memoryview:
        """A part of `source`, which is the file by default."""
        part = (self._data if source is None else source)[begin : begin + size]
        self._left -= max(len(part), 1)
        if self._left < 0:
            raise DecodeError(Status.TOO_LARGE, "its images have more bytes than the file")
        return part


def _pictures_of_avif(data: memoryview) -> Iterator[CodedPicture]:
    """The frames of all AV1 images and tracks, tiles and alpha among them, and the sizes that these are scaled to."""
    uses, has_frames = _Uses(data), False
    streams = list[Iterable[bytes | memoryview]]()
    for name, begin, end in _boxes(data, 0, len(data)):
        if name == b"meta":
            yield from _sizes_of_images(data, begin, end)
            for kind, content in _items(data, begin, end, uses):
                if kind == b"av01":
                    streams.append([content])
                elif kind == b"grid":
                    yield _canvas(content)
        elif name == b"moov":
            for track, track_begin, track_end in _boxes(data, begin, end):
                if track == b"trak":
                    yield from _sizes_of_track(data, track_begin, track_end)
                    streams.append(_stream_of_track(data, track_begin, track_end, uses))
    for frame in itertools.chain.from_iterable(map(_frames, streams)):
        has_frames = True
        yield frame
    if not has_frames:
        raise EOFError


def _sizes_of_images(data: memoryview, begin: int, end: int) -> Iterator[CodedPicture]:
    """The sizes (ispe) of images in the content of a box `meta` (ISO/IEC 23008-12, 6.5.3)."""
    for place in _find(data, begin + 4, end, b"iprp", b"ipco", b"ispe"):
        yield CodedPicture("its image is scaled to", _number(data, place[0] + 4, 4), _number(data, place[0] + 8, 4))


def _sizes_of_track(data: memoryview, begin: int, end: int) -> Iterator[CodedPicture]:
    """The size of a track (14496-12, 8.3.2): the last two numbers, in units of 2^-16."""
    for _, place_end in _find(data, begin, end, b"tkhd"):
        yield CodedPicture("its image is scaled to", _number(data, place_end - 8, 2), _number(data, place_end - 4, 2))


def _find(data: memoryview, begin: int, end: int, *path: bytes) -> list[tuple[int, int]]:
    """Begin and end of the content of all boxes of a type within others, whose types come before it in `path`."""
    places = [(begin, end)]
    for kind in path:
        places = [(b, e) for outer in places for name, b, e in _boxes(data, *outer) if name == kind]
    return places


def _canvas(content: bytes) -> CodedPicture:
    """The picture of which images are the tiles (23008-12, 6.6.2.3): its extents follow version, flags, rows, columns."""
    size = 4 if content[1] & 1 else 2
    return CodedPicture("its tiles make", _number(content, 4, size), _number(content, 4 + size, size))


def _items(data: memoryview, begin: int, end: int, uses: _Uses) -> Iterator[tuple[bytes, bytes]]:
    """Types and data of the items, images among them, in the content of a box `meta` (14496-12, 8.11)."""
    begin += 4  # version and flags, as of all boxes below but `idat`
    types = dict[int, bytes]()
    for place, place_end in _find(data, begin, end, b"iinf"):
        size = 2 if data[place] == 0 else 4  # of the number of entries, by the version
        entries = list(_boxes(data, place + 4 + size, place_end))
        for name, entry, _ in entries:
            # In version 2: the number of the item (in version 3: 4 bytes), 2 bytes for protection, and the type.
            number_size = 2 if data[entry] == 2 else 4
            number = _number(data, entry + 4, number_size)
            if name != b"infe" or number in types:
                raise ValueError
            types[number] = bytes(data[entry + 6 + number_size : entry + 10 + number_size])
        if len(entries) != _number(data, place + 4, size):
            raise ValueError
    idat = memoryview(b"".join(data[b:e] for b, e in _find(data, begin, end, b"idat")))
    for place, place_end in _find(data, begin, end, b"iloc"):
        box, position = data[:place_end], place + 4
        version = box[place]

        def read(size: int) -> int:
            """The next number of `size` bytes."""
            nonlocal position
            position += size
            return _number(box, position - size, size)  # noqa: B023 (it is called in this turn of the loop only)

        # Four sizes of 4 bits: of offsets, lengths, base offsets, and indices.
        sizes = read(2)
        offset_size, length_size, base_size, index_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15, sizes & 15
        number_size = 2 if version < 2 else 4
        for _ in range(read(number_size)):
            item = read(number_size)
            is_in_idat = version > 0 and read(2) & 15 == 1  # the construction method
            read(2)  # the number of the file that has the data; 0: this one
            base, stream = read(base_size), bytearray()
            for _ in range(read(2)):
                read(index_size if version > 0 else 0)
                first, length = base + read(offset_size), read(length_size)
                stream += uses.part(first, length, idat if is_in_idat else data)
            yield types.get(item, b""), bytes(stream)


def _stream_of_track(data: memoryview, begin: int, end: int, uses: _Uses) -> Iterator[memoryview]:
    """The samples of a track of AV1 (14496-12, 8.5 to 8.7); none of another track."""
    # The contents of the tables, behind version and flags.
    tables = dict[bytes, memoryview]()
    for place in _find(data, begin, end, b"mdia", b"minf", b"stbl"):
        for name, table, table_end in _boxes(data, *place):
            if name in tables and name in (b"stsd", b"stco", b"co64", b"stsc", b"stsz"):
                raise ValueError
            tables[name] = data[table + 4 : table_end]
    if {b"stco", b"co64"} <= tables.keys():
        raise ValueError
    if b"av01" not in bytes(tables.get(b"stsd", data[:0])):  # one of the types of its entries
        return

    def column(name: bytes, skipped: int = 0, dtype: str = ">u4", width: int = 1) -> list[Any]:
        """The entries of a table, after `skipped` bytes and their number: numbers, or rows of `width` numbers."""
        table = tables.get(name, data[:0])
        x = np.frombuffer(table, dtype, width * _number(table, skipped, 4), skipped + 4)
        return (x if width == 1 else x.reshape(-1, width)).tolist()

    chunks = column(b"co64", dtype=">u8") if b"co64" in tables else column(b"stco")
    runs = column(b"stsc", width=3)  # of chunks: the number of the first, from 1, and the samples in each
    # `stsz` begins with the size of all samples, and their number; 0: each has its own.
    sample_sizes = tables.get(b"stsz", data[:0])
    size, count = _number(sample_sizes, 0, 4), _number(sample_sizes, 4, 4)
    if any(x[0] >= y[0] for x, y in itertools.pairwise(runs)):
        raise EOFError
    sizes = itertools.repeat(size, count) if size else iter(column(b"stsz", skipped=4))
    for k, (first, samples, _) in enumerate(runs):
        end = runs[k + 1][0] if k + 1 < len(runs) else len(chunks) + 1
        for offset in chunks[first - 1 : end - 1]:
            for size in itertools.islice(sizes, samples):
                yield uses.part(offset, size)
                offset += size


class _Bits:
    """Reads the bits of a byte string, the most significant first. Raises EOFError at its end."""

    def __init__(self, data: bytes | memoryview):
        self._number, self._left = int.from_bytes(data), 8 * len(data)

    def read(self, count: int) -> int:
        """f(n) of the AV1 specification: an unsigned integer of `count` bits."""
        self._left -= count
        if self._left < 0:
            raise EOFError
        return self._number >> self._left & ((1 << count) - 1)


_HEADER_BYTES = 1024  # of an OBU that are looked at; a sequence header has at most 32 operating points of 20 bytes
_SEQUENCE_HEADER, _FRAME_HEADERS = 1, (3, 6, 7)  # types of OBUs: OBU_FRAME_HEADER, _FRAME, _REDUNDANT_FRAME_HEADER


def _frames(parts: Iterable[bytes | memoryview]) -> Iterator[CodedPicture]:
    """The sizes of the frames in a stream of AV1 (AV1 specification, 5.3, 5.5 and 5.9)."""
    header = None
    for part in parts:
        position = 0
        while position < len(part):
            first = part[position]
            kind, has_extension, has_size = first >> 3 & 15, first >> 2 & 1, first >> 1 & 1
            position += 1 + has_extension
            size, shift, byte = 0, 0, 128 * has_size
            while byte > 127 and shift < 56:  # leb128
                byte = _number(part, position, 1)
                size |= (byte & 127) << shift
                position, shift = position + 1, shift + 7
            size = size if has_size else len(part) - position
            if kind == _SEQUENCE_HEADER or kind in _FRAME_HEADERS:
                bits = _Bits(part[position : position + min(size, _HEADER_BYTES)])
                if kind == _SEQUENCE_HEADER:
                    header = _SequenceHeader(bits)
                    yield CodedPicture("its frame has", *header.size)
                elif header is None:
                    raise EOFError
                elif not header.is_reduced and (frame_size := header.own_size(bits)):
                    yield CodedPicture("its frame has", *frame_size)
            position += size


class _SequenceHeader:
    """The sequence header OBU (AV1 specification, 5.5), up to what a frame header needs. The names are those there.

    Attributes:
      size: max_frame_width and max_frame_height, which frames have that give no other size.
      is_reduced: reduced_still_picture_header.
    """

    def __init__(self, bits: _Bits):
        f = bits.read
        f(3)  # seq_profile
        f(1)  # still_picture
        self.is_reduced = f(1)
        # Bits of buffer_delay, of frame_presentation_time, and of order_hint; 0: there is none.
        delay_bits = self._time_bits = self._order_bits = 0
        if self.is_reduced:
            f(5)  # seq_level_idx
        else:
            if f(1):  # timing_info_present_flag
                f(64)  # num_units_in_display_tick, time_scale
                equal_picture_interval = f(1)
                if equal_picture_interval:
                    _skip_uvlc(bits)  # num_ticks_per_picture_minus_1
                if f(1):  # decoder_model_info_present_flag
                    delay_bits = f(5) + 1
                    f(32 + 5)  # num_units_in_decoding_tick, buffer_removal_time_length_minus_1
                    time_bits = f(5) + 1
                    self._time_bits = 0 if equal_picture_interval else time_bits
            has_display_delays = f(1)
            for _ in range(f(5) + 1):  # operating points
                f(12)  # operating_point_idc
                if f(5) > 7:  # seq_level_idx
                    f(1)  # seq_tier
                if delay_bits and f(1):  # decoder_model_present_for_this_op
                    f(2 * delay_bits + 1)
                if has_display_delays and f(1):
                    f(4)  # initial_display_delay_minus_1
        self._has_decoder_model = delay_bits > 0
        self._width_bits, self._height_bits = f(4) + 1, f(4) + 1
        self.size = f(self._width_bits) + 1, f(self._height_bits) + 1
        if self.is_reduced:
            return
        self._delta_bits = f(4) + 2 if f(1) else 0  # of delta_frame_id_minus_1
        self._id_bits = self._delta_bits + f(3) + 1 if self._delta_bits else 0  # of current_frame_id
        f(3)  # use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter
        f(4)  # enable_interintra_compound, enable_masked_compound, enable_warped_motion, enable_dual_filter
        has_order_hint = f(1)
        if has_order_hint:
            f(2)  # enable_jnt_comp, enable_ref_frame_mvs
        # 2 is SELECT_SCREEN_CONTENT_TOOLS and SELECT_INTEGER_MV: each frame says it.
        self._screen_content_tools = 2 if f(1) else f(1)
        self._integer_mv = 2 if not self._screen_content_tools or f(1) else f(1)
        if has_order_hint:
            self._order_bits = f(3) + 1

    def own_size(self, bits: _Bits) -> tuple[int, int] | None:
        """The size that a frame header gives (5.9.2); None: it is that of the sequence or of an earlier frame."""
        f = bits.read
        if f(1):  # show_existing_frame
            return None
        frame_type, show_frame = f(2), f(1)
        if show_frame:
            f(self._time_bits)  # frame_presentation_time
        else:
            f(1)  # showable_frame
        is_intra, is_switch, is_shown_key = frame_type in (0, 2), frame_type == 3, frame_type == 0 and show_frame
        is_resilient = is_switch or is_shown_key or f(1)  # error_resilient_mode
        f(1)  # disable_cdf_update
        tools = f(1) if self._screen_content_tools == 2 else self._screen_content_tools
        if tools and self._integer_mv == 2:
            f(1)  # force_integer_mv
        f(self._id_bits)
        if not is_switch and not f(1):  # frame_size_override_flag
            return None
        f(self._order_bits)  # order_hint
        if not is_intra and not is_resilient:
            f(3)  # primary_ref_frame
        if self._has_decoder_model and f(1):  # buffer_removal_time, whose parts depend on layers: any size is possible
            return 1 << self._width_bits, 1 << self._height_bits
        refresh_flags = 255 if is_switch or is_shown_key else f(8)
        if is_resilient and (not is_intra or refresh_flags != 255):
            f(8 * self._order_bits)  # ref_order_hint
        if not is_intra:
            is_short = f(1) if self._order_bits else 0  # frame_refs_short_signaling
            # last_frame_idx and gold_frame_idx; of each reference, ref_frame_idx and delta_frame_id_minus_1.
            f(7 * self._delta_bits + (6 if is_short else 21))
            if not is_resilient and any(f(1) for _ in range(7)):  # found_ref
                return None
        return f(self._width_bits) + 1, f(self._height_bits) + 1


def _skip_uvlc(bits: _Bits):
    """uvlc() of the AV1 specification: as many zeros as there are bits after the following 1."""
    zeros = 0
    while not bits.read(1):
        zeros += 1
        if zeros == 32:  # decoders differ in what they read then
            raise EOFError
    bits.read(zeros)
