"""Files whose pictures are larger than their headers say: what libraries would decode is limited before they do."""

import io
import struct
import time
import zlib

import numpy as np
import pytest
import videos
from images import decode
from PIL import Image

import jaxdali
from jaxdali import types
from jaxdali._cpu import Format
from jaxdali.fn._decode import coded_pictures
from jaxdali.fn._decode.formats import DecodeError

imagecodecs = pytest.importorskip("imagecodecs")

SMALL, LARGE = np.zeros((8, 8, 4), np.uint8), np.zeros((200, 300, 4), np.uint8)


def still(pixels):
    return imagecodecs.avif_encode(pixels, speed=10)


def animation(pixels):
    file = io.BytesIO()
    first, *others = (Image.fromarray(pixels[..., :3] + k) for k in range(3))
    first.save(file, "AVIF", save_all=True, append_images=others, speed=10)
    return file.getvalue()


def declared_small(avif):
    """An AVIF file that says 8x8 wherever its container has a size: `ispe`, `tkhd` and the sample entry `av01`."""
    avif = bytearray(avif)
    for name in (b"ispe", b"tkhd", b"av01"):
        place = -1
        while (place := avif.find(name, place + 1)) >= 0:
            if name == b"ispe":
                avif[place + 8 : place + 16] = struct.pack(">II", 8, 8)
            elif name == b"tkhd":
                end = place - 4 + int.from_bytes(avif[place - 4 : place])
                avif[end - 8 : end] = struct.pack(">II", 8 << 16, 8 << 16)
            elif avif[place - 16 : place - 12] == b"stsd":
                avif[place + 28 : place + 32] = struct.pack(">HH", 8, 8)
    return bytes(avif)


def box(name, *content):
    content = b"".join(content)
    return struct.pack(">I", 8 + len(content)) + name + content


def avif_of(*streams, sizes=((8, 8),), in_idat=False, shared=False):
    """A file with an AV1 image for each stream, and the sizes that images are scaled to. `shared`: all are the same bytes
    of the file.
    """
    contents = streams[:1] if shared else streams
    numbers = range(1, len(streams) + 1)
    entries = [box(b"infe", bytes([2, 0, 0, 0]), struct.pack(">HH4s", k, 0, b"av01"), b"\0") for k in numbers]
    information = box(b"iinf", bytes(4), struct.pack(">H", len(entries)), *entries)
    ispe = [box(b"ispe", bytes(4), struct.pack(">II", *size)) for size in sizes]
    properties = box(b"iprp", box(b"ipco", *ispe))

    def file(begin):
        """The file, with the streams `begin` bytes from its start, or from that of the `idat`."""
        places, offset = [], begin
        for k, stream in zip(numbers, streams, strict=True):
            places.append(struct.pack(">HHHHII", k, in_idat, 0, 1, offset, len(stream)))
            offset += 0 if shared else len(stream)
        location = box(b"iloc", bytes([1, 0, 0, 0, 0x44, 0]), struct.pack(">H", len(streams)), *places)
        data = box(b"idat" if in_idat else b"mdat", *contents)
        parts = [information, properties, location, *([data] if in_idat else [])]
        head = box(b"ftyp", b"avif", bytes(4), b"avifmif1") + box(b"meta", bytes(4), *parts)
        return head if in_idat else head + data

    return file(0) if in_idat else file(len(file(0)) - sum(map(len, contents)))


def stream_of(avif):
    """The data of the first image in a file of imagecodecs, which has colours only."""
    return avif[avif.index(b"mdat") + 4 :]


@pytest.mark.parametrize(
    "encoded", [still(LARGE[..., :3]), still(LARGE), animation(LARGE)], ids=["RGB", "RGBA", "avis"]
)
def test_frames_of_avif(encoded, monkeypatch):
    lying = declared_small(encoded)
    assert decode([lying], max_pixels=60_000)[0].shape == (8, 8, 3)
    monkeypatch.setattr("jaxdali.fn._decode.pillow.decode", lambda *_: pytest.fail("nothing is decoded"))
    for page in (0, 1) if b"moov" in lying else (0,):
        with pytest.raises(jaxdali.SampleError, match=r"AVIF: .* its frame has 300 x 200 pixels, max_pixels is 59999"):
            decode([lying], max_pixels=59_999, page=page)


@pytest.mark.parametrize("in_idat", [False, True])
def test_every_image_of_avif_counts(in_idat):
    """Tiles of a grid and alpha are images beside the first. Libraries also scale each to its own size."""
    small, large = stream_of(still(SMALL[..., :3])), stream_of(still(LARGE[..., :3]))

    def largest(*streams, **arguments):
        return coded_pictures.largest_picture(avif_of(*streams, in_idat=in_idat, **arguments), Format.AVIF)[1:3]

    assert largest(small) == (8, 8)
    assert largest(small, large, small) == (300, 200)
    assert largest(small, sizes=[(8, 8), (90_000, 70_000), (8, 8)]) == (90_000, 70_000)
    for damaged in (b"", small[:5], b"\x32\x00"):  # the last one is a frame without a sequence
        with pytest.raises(DecodeError):
            largest(damaged)
    padded = small + b"\x7a\x88\x27" + bytes(5000)  # an OBU of padding
    assert largest(padded, padded, shared=True) == (8, 8)
    with pytest.raises(DecodeError, match="more bytes than the file"):
        largest(*[padded] * 9, shared=True)


def test_ambiguous_avif_is_damaged():
    """Libraries differ in what they take of a file that says something twice, so such a file could hide its frames."""
    stream = stream_of(still(LARGE[..., :3]))
    file = avif_of(stream)
    assert coded_pictures.largest_picture(file, Format.AVIF)[1:3] == (300, 200)
    again = box(b"infe", bytes([2, 0, 0, 0]), struct.pack(">HH4s", 1, 0, b"mime"), b"\0")
    entry = file.index(b"infe") - 4
    information = box(b"iinf", bytes(4), struct.pack(">H", 1), file[entry : entry + len(again)], again)
    for uncounted in (
        box(b"meta", bytes(4), information),
        box(b"meta", bytes(4), information[:13] + b"\2" + information[14:]),
    ):
        with pytest.raises(DecodeError):
            coded_pictures.largest_picture(file + uncounted, Format.AVIF)
    # Tracks: another type of entry may stand before AV1's, and each table is there once.
    file = avif_of(stream_of(still(SMALL[..., :3]))) + box(b"mdat", stream)
    place = len(file) - len(stream)
    tables = [table(b"stsc", 1, 1, 1, 1), table(b"stsz", len(stream), 1), table(b"stco", 1, place)]
    moov = box(b"moov", track(*tables, entries=(b"xxxx", b"av01")))
    assert coded_pictures.largest_picture(file + moov, Format.AVIF)[1:3] == (300, 200)
    for repeated in (*tables, table(b"co64", 1, 0, place)):
        with pytest.raises(DecodeError):
            coded_pictures.largest_picture(file + box(b"moov", track(*tables, repeated)), Format.AVIF)


def test_canvas_of_avif_counts():
    """Of a grid, whatever size the container says: rows and columns, then the extents."""
    grid = bytes([0, 0, 1, 2]) + struct.pack(">HH", 50_000, 40_000)
    file = avif_of(stream_of(still(SMALL[..., :3])), grid).replace(b"\0\2\0\0av01", b"\0\2\0\0grid")
    assert coded_pictures.largest_picture(file, Format.AVIF) == ("its tiles make", 50_000, 40_000, 1, False)


def test_av1_frames_with_other_sizes(tmp_path):
    """An encoder that resizes frames: those that are not of the sequence's size say their own."""
    av = pytest.importorskip("av")
    path = tmp_path / "a.mp4"
    videos.write(
        path, 6, "libsvtav1", size=(98, 130), preset="10", **{"svtav1-params": "resize-mode=1:resize-denom=12"}
    )
    with av.open(str(path)) as container:
        sizes = {frame[1:3] for frame in coded_pictures._frames([bytes(p) for p in container.demux(video=0)])}
    with av.open(str(path)) as container:
        decoded = {(frame.width, frame.height) for frame in container.decode(video=0)}
    assert decoded == {(136, 104), (91, 69)}
    assert sizes == decoded | {(130, 98)}  # the sequence's, which is not the largest


def tiff(width, height, samples=1, type_of_extents=4):
    """A TIFF file of a tile or strip of zeros."""
    data = zlib.compress(bytes(width * height))
    entries = [(256, 8), (257, 8), (258, 8), (259, 8), (262, 1), (277, samples)]
    entries += [(322, width), (323, height), (324, 8), (325, len(data))]
    directory = b"".join(
        struct.pack("<HHII", tag, type_of_extents if tag in (322, 323) else 4, 1, value) for tag, value in entries
    )
    return (
        struct.pack("<2sHI", b"II", 42, 8 + len(data)) + data + struct.pack("<H", len(entries)) + directory + bytes(4)
    )


def located(*items, version=1, sizes=0):
    """A box `iloc` of these items."""
    return box(b"iloc", bytes([version, 0, 0, 0]), struct.pack(">HH", sizes, len(items)), *items)


def track(*tables, entries=(b"av01",)):
    description = struct.pack(">I", len(entries)) + b"".join(struct.pack(">I4s", 8, kind) for kind in entries)
    return box(b"trak", box(b"mdia", box(b"minf", box(b"stbl", box(b"stsd", bytes(4), description), *tables))))


def table(name, *numbers):
    return box(name, bytes(4), struct.pack(f">{len(numbers)}I", *numbers))


def costly_files():
    """AVIF files of at most 1 MB whose boxes name far more than they have, by what they have many of."""
    image, stream = still(SMALL[..., :3]), stream_of(still(SMALL[..., :3]))
    no_bytes = struct.pack(">HHHH", 1, 0, 0, 65_535)
    whole_file = [struct.pack(">HHHHI", k, 0, 0, 1, 1 << 30) for k in range(50_000)]
    every_sample = [table(b"stsc", 1, 1, 0xFFFFFFFF, 1), table(b"stsz", 1, 0xFFFFFFFF)]
    later_numbers = b"\0\1" * 100_000
    no_chunk = table(b"stco", 1, 0xFFFFFFFF)
    absent_table = table(b"stco", 100_000)
    yield "extents", image + box(b"meta", bytes(4), located(no_bytes))
    yield "items of extents", image + box(b"meta", bytes(4), located(*3 * [no_bytes]))
    yield "metas of extents", image + 1000 * box(b"meta", bytes(4), located(no_bytes))
    yield "items of the whole file", image + box(b"meta", bytes(4), located(*whole_file, sizes=0x0400))
    yield "locations", image + box(b"meta", bytes(4), 20_000 * box(b"iloc", b"\1\0\0\0"), later_numbers)
    yield "boxes", image + box(b"meta", bytes(4), 100_000 * box(b"idat"))
    yield "names", image + box(b"meta", bytes(4), box(b"iinf", bytes(6), 100_000 * box(b"infe")), bytes(99))
    yield "samples", image + box(b"moov", 4000 * track(no_chunk, *every_sample))
    yield "tables", image + box(b"moov", 4000 * track(*every_sample, absent_table), bytes(400_000))
    yield "units", avif_of(stream + 400_000 * b"\x12\0")
    yield "sequences", avif_of(stream + 40_000 * stream[2:12])
    # An interval between pictures of very many bits.
    yield "zeros", avif_of(stream + 400 * (b"\x0a\xff\x07\x04" + bytes(7) + b"\2" + bytes(1014)))


@pytest.mark.parametrize(("kind", "file"), [pytest.param(*x, id=x[0]) for x in costly_files()])
def test_costly_files_end_soon(kind, file):
    began = time.monotonic()
    try:
        assert coded_pictures.largest_picture(file, Format.AVIF)[1:3] >= (8, 8)
    except DecodeError:
        pass
    assert time.monotonic() - began < 10


def test_tiles_of_tiff():
    assert not decode([tiff(512, 400)], max_pixels=512 * 400)[0].any()
    for file, message in (
        (tiff(512, 400), "its tiles have 512 x 400 pixels, max_pixels is 204799"),
        (tiff(512, 400, type_of_extents=13), "its tiles have 512 x 400 pixels"),  # an offset of a directory, in libtiff
        (tiff(512, 400, type_of_extents=11), "truncated"),  # a float
        (tiff(400, 16, samples=4000), "its tiles have 400 x 16 pixels of 4000 samples"),
    ):
        with pytest.raises(jaxdali.SampleError, match=message):
            decode([file], max_pixels=512 * 400 - 1, output_type=types.GRAY)


def test_too_many_scans():
    """Each scan of a progressive JPEG goes over the whole image."""
    file = io.BytesIO()
    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(file, "JPEG", progressive=True)
    jpeg = file.getvalue()
    last_scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    assert decode([jpeg[:-2] + 50 * last_scan + jpeg[-2:]])[0].shape == (64, 64, 3)
    with pytest.raises(jaxdali.SampleError, match="JPEG: the image has more than 500 scans, which are not decoded"):
        decode([jpeg[:-2] + 500 * last_scan + jpeg[-2:]])
