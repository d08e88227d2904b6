// PNG on the CPU: by the decoder of ffi/png, and what that leaves by libpng, to the same bits.
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

// libpng is quicker where it can stop before so much of the rows: libdeflate can't.
constexpr int64_t kLibpngsShare = 3;

// Pixels are in the output as the file has them.
bool IsOrdered(const ImageInfo& info, const DecodeOptions& options) {
  return options.type == ImageType::kAny || (options.type == ImageType::kRgb && info.channels == 3) ||
         (options.type == ImageType::kGray && info.channels == 1);
}

}  // namespace

bool DecodePngByOwn(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                    RasterOutput* out) {
  png::Decoder& decoder = DecoderOfThread();
  const int64_t first = out->first_row(), end = out->end_row();
  if (kLibpngsShare * end < info.height) return false;
  if (!decoder.Start(data, size, first, end)) return false;
  if (decoder.width() != info.width || decoder.height() != info.height || decoder.channels() != info.channels ||
      decoder.depth() != info.depth)
    return false;
  if (out->direct(info.depth) && IsOrdered(info, options)) {
    for (int64_t y = first; y < end; y++) decoder.NextRow(out->row(y));
    return true;
  }
  const int64_t stride = int64_t{info.width} * info.channels * (info.depth / 8);
  thread_local std::vector<uint8_t> rows;
  if (static_cast<int64_t>(rows.size()) < kRows * stride) rows.resize(static_cast<size_t>(kRows * stride));
  out->Reserve(info.depth);
  for (int64_t y = first; y < end; y += kRows) {
    const int n = static_cast<int>(std::min<int64_t>(kRows, end - y));
    for (int r = 0; r < n; r++) decoder.NextRow(rows.data() + r * stride);
    out->Put(y, n, rows.data(), info.channels, info.depth);
  }
  return true;
}

Status DecodePng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                 RasterOutput* out) {
  return DecodePngByOwn(data, size, info, options, out) ? kOk : DecodePngByLibpng(data, size, info, options, out);
}

}  // namespace jaxdali
