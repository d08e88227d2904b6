// JPEG on the CPU: the decoder of ffi/jpeg, and libjpeg-turbo for files that it does not support, with the same bits.
// If threads are idle, several decoders work on strips of one image (jpeg/strips.h).
#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "ffi/common/thread_pool.h"
#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/jpeg/baseline.h"
#include "ffi/jpeg/strips.h"

namespace jaxdali {
namespace {

// Whether this decoder is faster than libjpeg-turbo. Its portable kernels are not: they take 1.7 times as long on CPUs
// for which libjpeg-turbo has SIMD code.
bool IsFaster() {
  static const bool is_faster = &jpeg::BestKernels() != &jpeg::kPortableKernels;
  return is_faster;
}

bool IsGray(const ImageInfo& info, const DecodeOptions& options) {
  return options.type == ImageType::kGray || (options.type == ImageType::kAny && info.channels == 1);
}

// Starts decoding the region of a file. False: the file is not supported.
bool Start(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
           jpeg::BaselineDecoder* decoder) {
  // fast_idct means another inverse DCT, which only libjpeg-turbo has.
  if (options.fast_idct) return false;
  const jpeg::PixelFormat format = IsGray(info, options)             ? jpeg::PixelFormat::kGray
                                   : options.type == ImageType::kBgr ? jpeg::PixelFormat::kBgr
                                                                     : jpeg::PixelFormat::kRgb;
  if (!decoder->Start(data, size, format)) return false;
  const unsigned scale =
      ScaleTo(static_cast<unsigned>(decoder->width()), static_cast<unsigned>(decoder->height()), info);
  if (scale == 0 || (scale != 1 && !decoder->Scale(static_cast<int>(scale)))) return false;
  // A file that has changed since its header was read.
  if ((decoder->components() == 1) != (info.channels == 1)) return false;
  decoder->Select({info.region_y, info.region_x, info.region_h, info.region_w});
  return true;
}

bool DecodeStrips(const ImageInfo& info, const DecodeOptions& options, const std::vector<jpeg::Strip>& strips,
                  int64_t end, jpeg::BaselineDecoder* decoder, RasterOutput* out);

// Decodes the rows that a decoder gives next, up to `end`. As soon as other threads are idle, they help. False:
// libjpeg-turbo must decode the image.
bool DecodeRows(const ImageInfo& info, const DecodeOptions& options, int64_t end, jpeg::BaselineDecoder* decoder,
                RasterOutput* out) {
  // The decoder writes pixels in the output's order of channels, except for YCbCr, which is made from RGB.
  const bool has_output_order = options.type != ImageType::kYcbcr,
             in_place = has_output_order && out->in_place(/*depth=*/8);
  const int channels = IsGray(info, options) ? 1 : 3;
  const int64_t stride = int64_t{info.width} * channels, region_offset = int64_t{info.region_x} * channels;
  thread_local std::vector<uint8_t> rows;  // kRows rows of the stored width; only the region's part is filled
  if (!in_place && static_cast<int64_t>(rows.size()) < kRows * stride) rows.resize(static_cast<size_t>(kRows * stride));
  out->Reserve(/*depth=*/8);
  jpeg::Helpers helpers = options.helpers;
  for (int64_t y = decoder->next_row(); y < end; y += kRows) {
    // Other threads may have become idle since the last rows.
    if (const auto strips = jpeg::Cut(decoder, static_cast<int>(end), &helpers); !strips.empty())
      return DecodeStrips(info, options, strips, end, decoder, out);
    const int n = static_cast<int>(std::min<int64_t>(kRows, end - y));
    for (int r = 0; r < n; r++)
      if (!decoder->NextRow(in_place ? out->row(y + r) : rows.data() + r * stride + region_offset)) return false;
    if (in_place) continue;
    if (has_output_order)
      out->PutOrdered(y, n, rows.data());
    else
      out->Put(y, n, rows.data(), /*channels=*/3, /*depth=*/8);
  }
  return true;
}

// Decodes strips in parallel. `decoder` continues with the first one; the others get decoders of their own. False:
// libjpeg-turbo must decode the image.
bool DecodeStrips(const ImageInfo& info, const DecodeOptions& options, const std::vector<jpeg::Strip>& strips,
                  int64_t end, jpeg::BaselineDecoder* decoder, RasterOutput* out) {
  const int n = static_cast<int>(strips.size());
  const jpeg::Region region = decoder->region();
  std::atomic<bool> is_good{true};
  // Strip k ends where the next one begins.
  options.helpers.pool->Run(n, [&](int k) {
    const int row = strips[k].row, end_row = k + 1 < n ? strips[k + 1].row : static_cast<int>(end);
    try {
      std::unique_ptr<jpeg::BaselineDecoder> new_decoder;
      if (k > 0) {
        new_decoder = std::make_unique<jpeg::BaselineDecoder>(decoder->kernels());
        new_decoder->Follow(*decoder, {row, region.x, end_row - row, region.width});
      }
      jpeg::BaselineDecoder* const strip_decoder = new_decoder ? new_decoder.get() : decoder;
      RasterOutput strip_output = *out;
      if (!strip_decoder->Enter(strips[k].start) || !DecodeRows(info, options, end_row, strip_decoder, &strip_output))
        is_good = false;
    } catch (const std::bad_alloc&) {
      is_good = false;
    }
  });
  return is_good;
}

}  // namespace

jpeg::BaselineDecoder& JpegDecoderOfThread() {
  thread_local jpeg::BaselineDecoder decoder;
  return decoder;
}

bool DecodeJpegByBaseline(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                          jpeg::BaselineDecoder* decoder, RasterOutput* out) {
  return Start(data, size, info, options, decoder) && DecodeRows(info, options, out->end_row(), decoder, out);
}

Status DecodeJpeg(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out) {
  if (IsFaster() && DecodeJpegByBaseline(data, size, info, options, &JpegDecoderOfThread(), out)) return kOk;
  return DecodeJpegByTurbo(data, size, info, options, out);
}

jpeg::BaselineDecoder* StartRows(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                                 const jpeg::Strip* strip) {
  if (info.status != kOk || info.host_decode || static_cast<Format>(info.format) != Format::kJpeg) return nullptr;
  if (!IsDecodable(info) || (options.adjust_orientation && info.orientation != 1)) return nullptr;
  if (!IsFaster() || options.type == ImageType::kYcbcr) return nullptr;
  jpeg::BaselineDecoder* decoder = &JpegDecoderOfThread();
  if (!Start(data, size, info, options, decoder) || (strip && !decoder->Enter(strip->start))) return nullptr;
  return decoder;
}

}  // namespace jaxdali
