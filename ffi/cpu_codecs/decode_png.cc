// PNG on the CPU: the decoder of ffi/png, and libpng for files that it does not support, with the same bits.
#include <algorithm>
#include <vector>

#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/png/decoder.h"

namespace jaxdali {
namespace {

png::Decoder& DecoderOfThread() {
  thread_local png::Decoder decoder;
  return decoder;
}

// libpng is faster for a region in the first third of the rows: it stops below the region. libdeflate can't stop early.
constexpr int64_t kLibpngFraction = 3;

// Starts decoding the region of a file. False: the file is not supported.
bool Start(const uint8_t* data, int64_t size, const ImageInfo& info, png::Decoder* decoder) {
  const int64_t end = int64_t{info.region_y} + info.region_h;
  return kLibpngFraction * end >= info.height &&
         decoder->Start(data, size, info.region_y, end, info.palette == kAsIndices) && decoder->width() == info.width &&
         decoder->height() == info.height && decoder->channels() == info.channels && decoder->depth() == info.depth;
}

// Memory of this thread for rows of the file's whole width. It only grows.
uint8_t* Rows(int64_t bytes) {
  thread_local std::vector<uint8_t> rows;
  if (static_cast<int64_t>(rows.size()) < bytes) rows.resize(static_cast<size_t>(bytes));
  return rows.data();
}

}  // namespace

// Decodes the region of a file: in place, or kRows rows at a time into this thread's memory. False: libpng must decode
// it.
bool DecodePngByLibdeflate(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                           RasterOutput* out) {
  png::Decoder& decoder = DecoderOfThread();
  if (!Start(data, size, info, &decoder)) return false;
  const int64_t first = out->first_row(), end = out->end_row();
  // Rows of the output have the file's channels and width, so they are decoded in place.
  if (out->direct(info.depth) && IsOrdered(info, options)) {
    for (int64_t y = first; y < end; y++) decoder.NextRow(out->row(y));
    return true;
  }
  const int64_t stride = int64_t{info.width} * info.channels * (info.depth / 8);
  uint8_t* rows = Rows(kRows * stride);
  out->Reserve(info.depth);
  for (int64_t y = first; y < end; y += kRows) {
    const int n = static_cast<int>(std::min<int64_t>(kRows, end - y));
    for (int r = 0; r < n; r++) decoder.NextRow(rows + r * stride);
    out->Put(y, n, rows, info.channels, info.depth);
  }
  return true;
}

Status DecodePng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                 RasterOutput* out) {
  return DecodePngByLibdeflate(data, size, info, options, out) ? kOk
                                                               : DecodePngByLibpng(data, size, info, options, out);
}

// Starts decoding row by row, for a chain. Null: the file is not supported, or its image needs another orientation.
png::Decoder* StartPngRows(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options) {
  if (info.status != kOk || info.host_decode || static_cast<Format>(info.format) != Format::kPng) return nullptr;
  if (!IsDecodable(info) || info.depth != 8 || (options.adjust_orientation && info.orientation != 1)) return nullptr;
  png::Decoder* decoder = &DecoderOfThread();
  return Start(data, size, info, decoder) ? decoder : nullptr;
}

// Writes the region's pixels of the next row, with the output's channels.
void NextPngRow(png::Decoder* decoder, const ImageInfo& info, const DecodeOptions& options, uint8_t* pixels) {
  if (info.region_w == info.width && IsOrdered(info, options)) return decoder->NextRow(pixels);
  uint8_t* row = Rows(int64_t{info.width} * info.channels);
  decoder->NextRow(row);
  ConvertPixels(row + int64_t{info.region_x} * info.channels, info.region_w, info.channels, options.type, pixels);
}

}  // namespace jaxdali
