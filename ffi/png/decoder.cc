// The whole image is decompressed first. Rows are then unfiltered and expanded one by one, or, for an interlaced file,
// into a raster of the whole image.
#include "ffi/png/decoder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ffi/png/unfilter.h"

#if defined(JAXDALI_LIBDEFLATE)
#include <libdeflate.h>
#endif

namespace jaxdali::png {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of a decompressed image
constexpr int64_t kMaxExpansion = 1040;           // deflate expands at most 1032 times

// Adam7 (ISO/IEC 15948, clause 8): every pass of an interlaced file is a separate image, the pixels from (y, x) on, at
// these distances.
struct Pass {
  int y, x, step_y, step_x;
};
constexpr Pass kPasses[7] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                             {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}};

int64_t NumSteps(int64_t size, int first, int step) { return size > first ? (size - first + step - 1) / step : 0; }

// Calls image(pass, rows, pixels of a row) for all images that are not empty.
template <class F>
void ForEachImage(const File& file, F image) {
  if (!file.interlaced) {
    image(Pass{/*y=*/0, /*x=*/0, /*step_y=*/1, /*step_x=*/1}, file.height, file.width);
    return;
  }
  for (const Pass& p : kPasses) {
    const int64_t rows = NumSteps(file.height, p.y, p.step_y), pixels = NumSteps(file.width, p.x, p.step_x);
    if (rows > 0 && pixels > 0) image(p, rows, pixels);
  }
}

// For each byte, its samples of 1, 2 or 4 bits as one byte each: unchanged, or as gray values scaled to 0 .. 255.
struct SampleTable {
  int per_byte;
  uint8_t values[256][8];
  constexpr SampleTable(int bits, bool gray) : per_byte(8 / bits), values{} {
    const int max_value = (1 << bits) - 1, factor = gray ? 255 / max_value : 1;
    for (int byte = 0; byte < 256; byte++)
      for (int i = 0; i < per_byte; i++)
        values[byte][i] = static_cast<uint8_t>((byte >> (8 - bits * (i + 1)) & max_value) * factor);
  }
};
// [as gray values][bits / 2]
constexpr SampleTable kSampleTables[2][3] = {{{1, false}, {2, false}, {4, false}}, {{1, true}, {2, true}, {4, true}}};

// Unpacks a row's pixels of less than 8 bits to one byte each.
void ExpandBits(const uint8_t* row, const SampleTable& samples, int64_t pixels, uint8_t* output) {
  for (; pixels >= samples.per_byte; pixels -= samples.per_byte, output += samples.per_byte)
    std::memcpy(output, samples.values[*row++], static_cast<size_t>(samples.per_byte));
  if (pixels > 0) std::memcpy(output, samples.values[*row], static_cast<size_t>(pixels));
}

// Writes the colour of each index, three bytes. Four bytes at a time are quicker than three, but the last pixel must
// not write beyond its three.
void LookUpColors(const uint8_t* indices, const uint8_t (*palette)[4], int64_t pixels, uint8_t* output) {
  for (; pixels > 1; pixels--, output += 3) std::memcpy(output, palette[*indices++], 4);
  if (pixels > 0) std::memcpy(output, palette[*indices], 3);
}

// Converts n values of 16 bits, which are big-endian in the file, to this machine's order.
void SwapBytes(const uint8_t* row, int64_t n, uint8_t* output) {
  for (int64_t i = 0; i < n; i++) {
    uint16_t v;
    std::memcpy(&v, row + 2 * i, 2);
    if (std::endian::native == std::endian::little) v = static_cast<uint16_t>(v << 8 | v >> 8);
    std::memcpy(output + 2 * i, &v, 2);
  }
}

// Writes pixels of kBytes bytes to every `step`th pixel of a row.
template <int kBytes>
void ScatterPixels(const uint8_t* from, int64_t pixels, int step, uint8_t* to) {
  for (int64_t x = 0; x < pixels; x++) std::memcpy(to + kBytes * step * x, from + kBytes * x, kBytes);
}

}  // namespace

Decoder::~Decoder() {
#if defined(JAXDALI_LIBDEFLATE)
  libdeflate_free_decompressor(inflate_);
#endif
}

// Begins with a file: decompresses it, and unfilters what comes before `first_row`. `indices`: rows are the indices of
// a palette in place of colours. False: the file is left to libpng.
bool Decoder::Start(const uint8_t* data, int64_t size, int64_t first_row, int64_t end_row, bool indices) {
  indices_ = indices;
  raster_ = nullptr;
  if (!ReadChunks(data, size, &file_)) return false;
  int64_t bytes = 0;
  ForEachImage(file_,
               [&](const Pass&, int64_t rows, int64_t pixels) { bytes += rows * (1 + file_.row_bytes(pixels)); });
  // An image that the data can't fill is left to libpng before memory is allocated for it.
  if (bytes > kMaxBytes || bytes / kMaxExpansion > file_.idat_size || !Inflate(bytes)) return false;
  // Filters work on bytes: the pixel to the left is this many bytes before, at least one (clause 9.2).
  pixel_bytes_ = std::max(file_.bits_per_pixel() / 8, 1);

  // A file with an unknown filter, in a row that libpng would read, is left to libpng.
  const uint8_t* filtered = filtered_;
  bool has_known_filters = true;
  ForEachImage(file_, [&](const Pass&, int64_t rows, int64_t pixels) {
    const int64_t pitch = 1 + file_.row_bytes(pixels);
    // A row begins with the byte of its filter. Of an image without passes, rows behind end_row aren't read.
    for (int64_t y = 0; y < (file_.interlaced ? rows : end_row); y++)
      has_known_filters &= filtered[y * pitch] < kFilters;
    filtered += rows * pitch;
  });
  if (!has_known_filters) return false;

  if (file_.interlaced) {
    Deinterlace();
    raster_ += first_row * file_.width * channels() * (depth() / 8);
    return true;
  }
  raster_memory_.OfSize(0);
  // Starts at the nearest row at or above the region that does not depend on the row above it.
  const int64_t pitch = 1 + file_.row_bytes(file_.width);
  int64_t y = first_row;
  while (y > 0 && filtered_[y * pitch] > kSub) y--;
  filtered_ += y * pitch;
  BeginRows(end_row - y, file_.width);
  for (; y < first_row; y++) NextUnfiltered();
  return true;
}

// Decompresses the image data, which must have exactly `bytes` bytes. False: the file is left to libpng.
bool Decoder::Inflate(int64_t bytes) {
#if defined(JAXDALI_LIBDEFLATE)
  // libdeflate needs the data of all IDAT chunks in one piece.
  const uint8_t* packed = file_.idat[0].data;
  if (file_.idat.size() > 1) {
    auto* end = static_cast<uint8_t*>(packed_memory_.OfSize(file_.idat_size));
    packed = end;
    for (const Piece& p : file_.idat) end = std::copy_n(p.data, p.size, end);
  }
  // The upper half of the zlib header's first byte is the size of the window, 2^(8 + n) (RFC 1950). zlib refuses
  // distances beyond it; libdeflate does not check. A smaller window than possible distances is left to libpng.
  if (file_.idat_size < 2 || packed[0] >> 4 > 7 || int64_t{256} << (packed[0] >> 4) < std::min<int64_t>(bytes, 32768))
    return false;
  if (!inflate_) inflate_ = libdeflate_alloc_decompressor();
  if (!inflate_) return false;
  auto* filtered = static_cast<uint8_t*>(filtered_memory_.OfSize(bytes + kMargin));
  filtered_ = filtered;
  size_t bytes_read, bytes_written;
  return libdeflate_zlib_decompress_ex(inflate_, packed, static_cast<size_t>(file_.idat_size), filtered,
                                       static_cast<size_t>(bytes), &bytes_read, &bytes_written) == LIBDEFLATE_SUCCESS &&
         bytes_read == static_cast<size_t>(file_.idat_size) && bytes_written == static_cast<size_t>(bytes);
#else
  return bytes < 0;  // never called: without libdeflate ReadChunks refuses every file
#endif
}

// Begins with the rows of an image or of a pass.
void Decoder::BeginRows(int64_t rows, int64_t pixels) {
  row_bytes_ = file_.row_bytes(pixels);
  rows_left_ = rows;
  has_row_below_ = false;
  const int64_t pitch = (row_bytes_ + kMargin + 63) / 64 * 64;
  auto* memory = static_cast<uint8_t*>(rows_memory_.OfSize(3 * pitch));
  for (int i = 0; i < 3; i++) rows_[i] = memory + i * pitch;
  std::memset(rows_[1], 0, static_cast<size_t>(pitch));  // becomes the row above the first one
}

// Reverses the filter of the next row. Returns its bytes, still packed.
const uint8_t* Decoder::NextUnfiltered() {
  // The row above, this one and the one below. The oldest buffer becomes the row below.
  std::rotate(rows_, rows_ + 1, rows_ + 3);
  const int pixel = static_cast<int>(pixel_bytes_), filter = *filtered_;
  const int64_t pitch = 1 + row_bytes_;  // a stored row begins with the byte of its filter
  if (has_row_below_) {
    has_row_below_ = false;
  } else if (filter >= kAverage && rows_left_ > 1 && filtered_[pitch] == filter) {
    // Two rows with the same slow filter are unfiltered together. The second one is kept for the next call.
    const uint8_t* stored[2] = {filtered_ + 1, filtered_ + pitch + 1};
    UnfilterTwo(filter, pixel, row_bytes_, stored, rows_[0], rows_ + 1);
    has_row_below_ = true;
  } else {
    Unfilter(filter, pixel, row_bytes_, filtered_ + 1, rows_[0], rows_[1]);
  }
  rows_left_--;
  filtered_ += pitch;
  return rows_[1];
}

// Turns the bytes of a row into values: unpacks bits, looks up palettes, swaps the bytes of 16-bit values.
void Decoder::Expand(const uint8_t* row, int64_t pixels, uint8_t* values) const {
  if (file_.bits == 16) {
    SwapBytes(row, pixels * file_.samples(), values);
  } else if (file_.color == kPalette && indices_ && file_.bits < 8) {
    ExpandBits(row, kSampleTables[/*as_gray=*/0][file_.bits / 2], pixels, values);
  } else if (file_.color == kPalette && !indices_ && file_.bits == 8) {
    LookUpColors(row, file_.palette, pixels, values);
  } else if (file_.color == kPalette && !indices_) {
    // Indices of less than 8 bits: unpacked piece by piece, then looked up.
    constexpr int64_t kPiece = 512;
    uint8_t indices[kPiece];
    for (int64_t x = 0; x < pixels; x += kPiece) {
      const int64_t n = std::min(kPiece, pixels - x);
      ExpandBits(row + x * file_.bits / 8, kSampleTables[/*as_gray=*/0][file_.bits / 2], n, indices);
      LookUpColors(indices, file_.palette, n, values + 3 * x);
    }
  } else if (file_.bits < 8) {
    ExpandBits(row, kSampleTables[/*as_gray=*/1][file_.bits / 2], pixels, values);
  } else {
    std::memcpy(values, row, static_cast<size_t>(pixels * file_.samples()));
  }
}

// Writes the values of the next row, its whole width.
void Decoder::NextRow(uint8_t* values) {
  if (raster_) {
    const int64_t bytes = file_.width * channels() * (depth() / 8);
    std::memcpy(values, raster_, static_cast<size_t>(bytes));
    raster_ += bytes;
  } else {
    Expand(NextUnfiltered(), file_.width, values);
  }
}

// Decodes all passes of an interlaced file into a raster of the whole image.
void Decoder::Deinterlace() {
  const int bytes = channels() * (depth() / 8);  // of a pixel
  const int64_t pitch = file_.width * bytes;
  // The raster, and after it a row of a pass.
  auto* raster = static_cast<uint8_t*>(raster_memory_.OfSize((file_.height + 1) * pitch));
  uint8_t* row = raster + file_.height * pitch;
  // Row y of a pass goes to row p.y + y * p.step_y of the image, its pixels p.step_x apart from column p.x on.
  ForEachImage(file_, [&](const Pass& p, int64_t rows, int64_t pixels) {
    BeginRows(rows, pixels);
    for (int64_t y = 0; y < rows; y++) {
      Expand(NextUnfiltered(), pixels, row);
      uint8_t* to = raster + (p.y + y * p.step_y) * pitch + p.x * bytes;
      switch (bytes) {
        case 1:
          ScatterPixels<1>(row, pixels, p.step_x, to);
          break;
        case 2:
          ScatterPixels<2>(row, pixels, p.step_x, to);
          break;
        case 3:
          ScatterPixels<3>(row, pixels, p.step_x, to);
          break;
        case 4:
          ScatterPixels<4>(row, pixels, p.step_x, to);
          break;
        case 6:
          ScatterPixels<6>(row, pixels, p.step_x, to);
          break;
        default:
          ScatterPixels<8>(row, pixels, p.step_x, to);
          break;
      }
    }
  });
  raster_ = raster;
}

}  // namespace jaxdali::png
