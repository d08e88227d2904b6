# Made by nanobind's stubgen from the compiled module: python -m nanobind.stubgen -m jaxdali._cpu -o jaxdali/_cpu.pyi, and this line.
from collections.abc import Callable, Sequence
import enum
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


class Status(enum.IntEnum):
    """Why a sample failed."""

    OK = 0
    """good"""

    TRUNCATED = 1
    """the image data end early (truncated file)"""

    CORRUPT = 2
    """the image data are damaged"""

    UNKNOWN_FORMAT = 3
    """the data are not an image of a known format"""

    UNSUPPORTED = 4
    """the image uses a feature that is not supported"""

    EMPTY = 5
    """the sample is empty (0 bytes)"""

    SIZE_MISMATCH = 6
    """the decoded size differs from the size in the header"""

    OUT_OF_BOUNDS = 7
    """the window reaches outside the input"""

    TOO_LARGE = 8
    """the image is too large"""

    READ_ERROR = 9
    """the file can't be read"""

    OUT_OF_MEMORY = 10
    """out of memory"""

    INTERNAL = 11
    """internal error"""

    REFUSED = 12
    """the GPU's decoder refused the data"""

    ARGUMENT = 13
    """an argument is invalid"""

    INPUT = 14
    """the operator does not support this input"""

    OUT_OF_RANGE = 15
    """an index is out of range"""

    RECORD = 16
    """the record can't be read"""

    TOO_MANY_SCANS = 17
    """the image has more than 500 scans, which are not decoded"""

class Format(enum.IntEnum):
    """Format of an encoded image."""

    UNKNOWN = 0

    JPEG = 1

    PNG = 2

    RAW = 3

    BMP = 4

    TIFF = 5

    WEBP = 6

    PNM = 7

    JPEG2000 = 8

    PIXELS = 9

    COMPACT = 10

    GIF = 11

    AVIF = 12

    HEIC = 13

    JPEG_XL = 14

class Info(enum.IntEnum):
    """Columns of the info operand, see image_header.h."""

    STATUS = 0

    FORMAT = 1

    HEIGHT = 2

    WIDTH = 3

    CHANNELS = 4

    DEPTH = 5

    ORIENTATION = 6

    HOST_DECODE = 7

    ORIENTATION_AT = 8

    PAGE = 9

    PALETTE = 10

    TRUNCATED = 11

    REGION_Y = 12

    REGION_X = 13

    REGION_H = 14

    REGION_W = 15

class RecordFormat(enum.IntEnum):
    """Format of the records in a container."""

    BYTES = 0

    EXAMPLE = 1

    IMAGE_RECORD = 2

    DATUM = 3

    TENSOR_PROTOS = 4

    TAR_MEMBER = 5

    MESSAGE = 6

class ValueType(enum.IntEnum):
    """Type of the values of a record's field."""

    NONE = 0

    BYTES = 1

    FLOATS = 2

    INTS = 3

class Missing(enum.IntEnum):
    """What to do with a sample that lacks a member."""

    EMPTY = 0

    SKIP = 1

    ERROR = 2

class ChunkError(enum.IntEnum):
    """The error found in a chunk of a Riegeli file."""

    NONE = 0

    HEADER_UNREAD = 1

    HEADER_HASH = 2

    OTHER_CHUNK = 3

    DATA_HASH = 4

class Distribution(enum.IntEnum):
    """Distribution of random numbers."""

    UNIT = 0

    NORMAL = 1

class ImageType(enum.IntEnum):
    """Colour space of a decoded image."""

    RGB = 0

    BGR = 1

    GRAY = 2

    YCBCR = 3

    ANY = 4

class Interp(enum.IntEnum):
    """Filter for resizing and warping."""

    NN = 0

    LINEAR = 1

    CUBIC = 2

    LANCZOS3 = 3

    TRIANGULAR = 4

    GAUSSIAN = 5

    AREA = 6

class Border(enum.IntEnum):
    """The values beyond the border."""

    CONSTANT = 0
    """a constant value"""

    REFLECT_101 = 1
    """dcb|abcd|cba: mirrored at the centre of the outermost element"""

    REFLECT_1001 = 2
    """cba|abcd|dcb: mirrored at its edge"""

    WRAP = 3
    """bcd|abcd|abc"""

    REPLICATE = 4
    """aaa|abcd|ddd"""

class Points(enum.IntEnum):
    """How the source point of a pixel is found, see remap.h."""

    GIVEN = 0

    PROJECTIVE = 1

    SPHERE = 2

    WATER = 3

    JITTER = 4

    GRID = 5

class Reduction(enum.IntEnum):
    """Reduction over axes."""

    SUM = 0

    SQUARES = 1

    MIN = 2

    MAX = 3

class StencilReduction(enum.IntEnum):
    """Reduction of the window around an element."""

    SUM = 0

    MEDIAN = 1

    MAX = 2

    MIN = 3

ALIGNMENT: int = 64

PLAN_BYTES: int = 512

STATUSES_OF_STAGE: int = 256

EXTENSION_VERSION: int = 4

MOST_STAGES: int = 16

MOST_TILE_CHANNELS: int = 4

INFO_COLUMNS: int = 16

TABLE_WORDS: int = 791

JPEG_GROUP_BYTES: int = 41943040

BYTES_PER_THREAD: int = 131072

OTHER_HEAD: int = -2

SIZE_CHANGED: int = -1

CHUNK_HEADER: int = 40

MOST_WINDOW: int = 4096

MCU_SIDE: int = 16

MCU_BYTES: int = 384

LAB_SIZES: tuple = (256, 3072, 256, 4096)

def expf(x: float) -> float:
    """The C library's, in single precision."""

def logf(x: float) -> float:
    """The C library's, in single precision."""

def status_table() -> dict:
    """Maps status codes to texts."""

def parse_headers(data: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', writable=False)], offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], present: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, pool: int = -1) -> int:
    """
    Parses the headers of a packed batch of encoded images (u8[S, capacity], i32[N] in units of kAlignment, i64[N]) into info i32[N, columns], on a thread pool; rows of absent ones are 0. Returns the most pixels of an image, or -1: a header is damaged, or must be read by a library, or its image must be decoded by one.
    """

def upright_extents(info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], adjust_orientation: bool, extents: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu')]) -> None:
    """
    Height and width of the images as they are seen, i64[N, 2]; 1 x 1 where a row has no image.
    """

def set_regions(info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], adjust_orientation: bool, start: Annotated[NDArray[numpy.float64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.float64], dict(shape=(None, 2), order='C', device='cpu', writable=False)]) -> list[int]:
    """
    Sets the regions of the stored rasters that windows of the upright images are, f64[N, 2] of whole numbers. Returns the rows whose window is empty or outside; they get the status OUT_OF_BOUNDS.
    """

def region_shapes(info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], adjust_orientation: bool, channels: int, shapes: Annotated[NDArray[numpy.int64], dict(shape=(None, 3), order='C', device='cpu')]) -> None:
    """
    Shapes of the upright images that the regions become, i64[N, 3]. channels: 0: those of each file.
    """

def random_windows(u: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], extents: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], area: Sequence[float], aspect_ratio: Sequence[float], start: Annotated[NDArray[numpy.float64], dict(shape=(None, 2), order='C', device='cpu')], size: Annotated[NDArray[numpy.float64], dict(shape=(None, 2), order='C', device='cpu')]) -> None:
    """Random windows of images, see random_windows.py."""

def make_jpeg_tables(data: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', writable=False)], offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], usable: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], pool: int) -> None:
    """
    Describes each image for GPU kernels (i32[N, TABLE_WORDS]). The first word is 0 if they can't decode it.
    """

def compact_jpegs(data: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], most: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], output_type: int, pool: int) -> list:
    """
    Decodes the coefficients of progressive files on a thread pool, for GPU kernels to do the rest. Returns them in a compact form, and describes each image in tables (i32[N, TABLE_WORDS]). None: the CPU must decode the file, or its coefficients would have more than `most` bytes.
    """

def plan_jpeg_workspace(tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], shards: int, subsequence_bits: int = 0, groups: int = 0, group_bytes: int = 41943040) -> int:
    """
    Assigns each image its part of its shard's working memory. Returns how many bytes the largest shard needs. subsequence_bits: how many bits a thread decodes at a time; 0: chosen by the amount of data. groups: in how many the coefficients share memory, with at least group_bytes of working memory for each; 0: chosen. The call gets the same group_bytes.
    """

def decode_images(data: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], info: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], out: Sequence[Annotated[NDArray, dict(order='C', device='cpu')]], output_type: int, adjust_orientation: bool, fast_idct: bool, pool: int) -> list[int]:
    """
    Decodes images into arrays [H, W, C] on a thread pool. Returns the status of each.
    """

def encode_jpegs(images: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]], quality: int, factor_h: int, factor_v: int, bgr: bool, pool: int) -> list:
    """
    Encodes images [H, W, 1 or 3] as baseline JPEG on a thread pool. Returns the bytes of each file, or its status.
    """

@overload
def yuv_to_rgb(y: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), device='cpu', writable=False)], u: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), device='cpu', writable=False)], v: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), device='cpu', writable=False)], factors: Sequence[int], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu')]) -> None: ...

@overload
def yuv_to_rgb(y: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], u: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], v: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], factors: Sequence[int], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu')]) -> None:
    """
    Converts a frame of a video to RGB [H, W, 3]. Its samples are bytes, or words with 10 bits. Planes of chroma may have half of the extents, rounded up. factors: see YuvFactors.
    """

class FileTable:
    """The paths of a data set. Integers name the files of a batch."""

    def __init__(self, root: bytes, names: bytes, ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __len__(self) -> int: ...

class OpenFiles:
    """Files of a batch between file_sizes and read_files."""

    def __init__(self) -> None: ...

def file_sizes(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], arg3: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg4: OpenFiles, arg5: int, /) -> None:
    """Gets the size and errno of each file."""

def file_heads(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], arg3: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], arg4: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg5: int, /) -> None:
    """Reads the first bytes of each file, and gets its size and errno."""

def read_files(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], arg3: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg6: OpenFiles, arg7: int, /) -> None:
    """Reads each file to its place in a buffer."""

def crc32c(arg: bytes, /) -> int:
    """CRC-32C (Castagnoli)"""

def highway_hash(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], key: Sequence[int] = ...) -> int:
    """HighwayHash of 64 bits. The default key is Riegeli's."""

class HighwayHash:
    """Hashes bytes that are given in parts, with Riegeli's key."""

    def __init__(self) -> None: ...

    def append(self, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def finish(self) -> int:
        """Returns the hash. Call it once."""

def check_chunks(arg0: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg6: int, /) -> None:
    """
    Checks the checksums of Riegeli's chunks with one record each. Sets the ChunkError of each that has none yet.
    """

def parse_integers(text: bytes, out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> tuple[int, int]:
    """
    Returns the number of integers in a text, and the offset of the first text that is not one, or -1.
    """

class TarSamples:
    """
    The samples of WebDataset archives, with the position of each output's member.
    """

    def __init__(self, extensions: Sequence[Sequence[str]], fold_case: bool, missing: Missing, keep_names: bool) -> None: ...

    def begin_file(self, samples: int) -> None:
        """Begins the next file, which has about this many samples."""

    def scan(self, path: bytes) -> str:
        """
        Adds the samples of an archive. Returns an error message without the path, or "".
        """

    def parse(self, lines: bytes, width: int, at: int) -> str:
        """
        Adds the samples of an index's lines. Returns an error message without the path, or "".
        """

    def __len__(self) -> int: ...

    @property
    def lines(self) -> int:
        """Lines of this file's index."""

    def name(self, i: int) -> bytes:
        """Name of a sample's first member, if names are kept."""

    def column(self, output: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', writable=False)]:
        """Offset and size of an output's members, i64[n, 2]."""

    def other_case(self, output: int) -> int:
        """
        Number of samples that lack an output's member, and would have it if extensions matched in any case.
        """

    def blocks(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', writable=False)]:
        """
        (first sample, offset of its line in the index) for parts of the list, i64[blocks, 2].
        """

def tar_index(path: bytes, progress: Callable) -> tuple:
    """
    Returns the lines of an archive's index, the number of samples, and an error message or "".
    """

def tar_sparse(before: bytes) -> tuple:
    """
    Given the bytes of an archive before a member's header: returns why the member can't be read if PAX 0.0 marks it as a sparse file, or ""; and whether more bytes are needed to know.
    """

def read_ranges(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg7: int, /) -> list[tuple[int, int]]:
    """
    Reads ranges of files, each to its place in a buffer. Returns (range, error) for those that can't be read.
    """

def read_packed_ranges(arg0: FileTable, arg1: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], arg6: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg7: int, arg8: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg9: int, /) -> list[tuple[int, int]]:
    """The same for ranges of a list and the places of packed samples."""

def read_packed_blocked(arg0: FileTable, arg1: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], arg6: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg7: int, arg8: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg9: int, /) -> list[tuple[int, int]]:
    """The same for logical positions in Riegeli's files."""

def read_blocked(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg7: int, /) -> list[tuple[int, int]]:
    """The same for logical positions in Riegeli's files."""

def read_files_behind(arg0: FileTable, arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: bytes, arg3: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg7: int, /) -> None:
    """
    Reads what follows the same first bytes in each file, each to its place in a buffer.
    """

def copy_parts(arg0: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: int, /) -> None:
    """Copies parts of buffers, each to its place in another buffer."""

def parse_chunk_table(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], end: bool, rows: Annotated[NDArray[numpy.int64], dict(shape=(None, 3), order='C', device='cpu')]) -> tuple[int, int]:
    """
    Parses a Riegeli file's table of chunks. Returns the number of entries, or -1 if it is damaged, and the bytes used.
    """

class RecordShape(enum.Enum):
    """How the shape of an output is determined."""

    COUNT = 0

    ROWS = 1

    STATED = 2

    FIXED = 3

    STRING = 4

    STRINGS = 5

    PADDED = 6

    LENGTHS = 7

class RecordLayout:
    """The format of records, and the outputs that are made from them."""

    def __init__(self, format: RecordFormat, names: Sequence[str], fields: int, parts: int = 1, lists: Sequence[bool] = [], first_strings: Sequence[bool] = []) -> None: ...

    def add_output(self, name: str, dtype: str, field: int, type: ValueType, bytes: int, shape: RecordShape, dims: Sequence[int], missing: bytes, missing_dims: Sequence[int] | None = None, required: bool = False) -> None:
        """Adds an output. Call it before making a batch."""

class RecordBatch:
    """The records of a batch: found in containers, parsed, and copied."""

    def __init__(self, layout: RecordLayout, n: int) -> None: ...

    @property
    def n(self) -> int:
        """The number of records."""

    def scan_memory(self, records: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], pool: int) -> None:
        """Scans records in memory."""

    def scan_rows(self, data: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], pool: int) -> None:
        """Scans records that are parts of one array."""

    def scan_files(self, table: FileTable, stamps: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], extents: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)]], checked: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]], pool: int) -> None:
        """Scans records in files."""

    def fail(self, i: int, why: str) -> None:
        """Sets the error of a record."""

    def describe(self, types: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], counts: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], dims: Annotated[NDArray[numpy.int64], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
        """
        Writes the types (ValueType), numbers of values, and shapes of each record's fields.
        """

    def errors(self) -> list[tuple[int, str]]:
        """Returns (record, error) for those that can't be read."""

    def shape(self, shapes: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')] | None], first: int) -> None:
        """
        Writes the outputs' shapes to rows from `first` on. Pass None for an output of fixed shape.
        """

    def fill(self, data: Sequence[Annotated[NDArray, dict(order='C', device='cpu')]], offsets: Sequence[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], first: int, pool: int) -> None:
        """Copies the outputs' values to the places from sample `first` on."""

def plan_offsets(shapes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], shards: int, offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Computes where packed samples begin. Returns the number of blocks in the fullest shard.
    """

def sample_of(array: object, start: int, shape: Sequence[int]) -> NDArray:
    """
    Returns a part of a flat array on any device, with another shape, as a DLPack capsule that keeps the array alive.
    """

def shuffle_epochs(order: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], seed: int, first: int, last: int) -> None:
    """
    Shuffles a list in place, once for each of the epochs first .. last, as DALI does.
    """

def philox(arg0: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, /) -> tuple:
    """One block of Philox4x32-10."""

def stream_key(seed: int, stream: int) -> int: ...

def random_fill(arg0: int, arg1: Distribution, arg2: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], arg6: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], arg7: int, /) -> None:
    """
    Writes the random doubles of one sample after another to a buffer, and where those of each start.
    """

def resample(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], step: float, table: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    Resamples a signal as DALI does: new samples are `step` old ones apart. `table`: that of the filter.
    """

def mean_powers(squares: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], window: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    The mean power of each window of a signal. Cumulative sums replace the squares of its samples.
    """

class ResizeMode(enum.IntEnum):
    """What becomes of axes without a size."""

    DEFAULT = 0

    STRETCH = 1

    NOT_LARGER = 2

    NOT_SMALLER = 3

class ExtentRounding(enum.IntEnum):
    """How an extent becomes a whole number."""

    ROUND = 0
    """halves up"""

    EVEN = 1
    """halves to even"""

    TRUNCATE = 2
    """towards 0"""

    CEIL = 3
    """up"""

    PYTHON = 4
    """halves to even; of one scale for all axes, in double precision"""

    TORCHVISION = 5
    """halves to even; of one scale for all axes, as torchvision does"""

    TIMM = 6
    """halves to even; of one scale for all axes, as timm does"""

def plan_resize(extents: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], request: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], first: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, last: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, relative: bool, mode: ResizeMode, max_size: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, subpixel_scale: bool, rounding: ExtentRounding, alignment: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, most: int, sizes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], intervals: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')]) -> bool:
    """
    Writes the extents and source intervals of a resize. Returns whether all numbers are finite and no extent is larger than `most`.
    """

def bound_windows(shapes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], trim: bool, start: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], extent: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]) -> list[int]:
    """
    Finds the windows that reach outside their samples: cuts or returns them.
    """

def mirror_windows(start: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], step: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], extent: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], axis: int, which: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """Mirrors an axis of the windows of some samples."""

def pack_rows(arrays: Sequence[Annotated[NDArray, dict(order='C', device='cpu', writable=False)]], places: Sequence[int], out: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    Copies the rows of arrays [S, ...] to their places, in bytes, in the rows of a buffer.
    """

def any_set(lender: object) -> bool:
    """
    Whether a byte of an object's buffer is not 0. Waits for a jax.Array; BufferError if it is not one on one CPU device.
    """

def packed_end(offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], shapes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> int:
    """
    Returns the end of what the fullest row of packed samples uses, in elements.
    """

def targets() -> dict:
    """Maps the names of FFI targets to capsules."""

def build_info() -> dict[str, str]:
    """Compiler, codecs and SIMD level, by name."""

def cuda_kernels() -> list[str]:
    """The names of the kernels that the CUDA module of this version has."""

def run_on_pool() -> int:
    """Address of RunOnPool, for jaxdali_connect in ffi/common/extension.h."""

def pool_create(num_threads: int) -> int: ...

def pool_share(num_threads: int) -> None: ...

def pool_destroy(id: int) -> None: ...

def pool_record(on: bool) -> None:
    """
    Begins or ends recording what the threads of all pools do, for benchmarks.
    """

def pool_recorded() -> list[list[int]]:
    """
    What was recorded since the last call: for each task, and for each call on a pool (index -1, in the thread that made it), number of the call, index, thread, begin and end by the monotonic and by the thread's CPU clock in ns.
    """
