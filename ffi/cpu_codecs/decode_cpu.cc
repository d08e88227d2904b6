// Decodes an image on the CPU: checks its row and selects the decoder. JPEG: decode_jpeg.cc (own decoder in ffi/jpeg,
// libjpeg-turbo in decode_turbo.cc). PNG: decode_png.cc (own decoder in ffi/png, libpng in decode_libpng.cc). WebP:
// decode_webp.cc (libwebp). Other formats are decoded by the host pass, whose pixels are only copied here.
#include <algorithm>
#include <cstring>
#include <new>

#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/decode/decode.h"

namespace jaxdali {
namespace {

// Format::kRaw: the uncompressed raster, which the host pass has made.
Status CopyRaw(const uint8_t* data, int64_t size, const ImageInfo& info, RasterOutput* out) {
  const int64_t stride = static_cast<int64_t>(info.width) * info.channels * (info.depth / 8);
  if (size != stride * info.height) return kSizeMismatch;
  out->Reserve(info.depth);
  const int64_t end = out->end_row();
  for (int64_t y = out->first_row(); y < end; y += kRows)
    out->Put(y, static_cast<int>(std::min<int64_t>(kRows, end - y)), data + y * stride, info.channels, info.depth);
  return kOk;
}

}  // namespace

// Checks that the caller's output fits the image's row, and decodes by the row's format. See decode.h for the statuses.
Status DecodeImage(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, DType dtype,
                   void* out, int64_t height, int64_t width, int64_t channels) {
  if (info.status != kOk) return static_cast<Status>(info.status);
  if (dtype == DType::kU64 || dtype == DType::kI64 || dtype == DType::kBool) return kUnsupported;
  if (info.host_decode) return kUnsupported;  // the host pass replaces these images by raw pixels
  if (!IsDecodable(info)) return kInternal;
  if (!OutputFits(info, options.type, options.adjust_orientation, height, width, channels)) return kSizeMismatch;
  try {
    RasterOutput output(info, options, dtype, out);
    switch (static_cast<Format>(info.format)) {
      case Format::kJpeg:
        return DecodeJpeg(data, size, info, options, &output);
      case Format::kPng:
        return DecodePng(data, size, info, options, &output);
      case Format::kWebp:
        return DecodeWebp(data, size, info, options, &output);
      case Format::kRaw:
        return CopyRaw(data, size, info, &output);
      case Format::kPixels:
        if (size != height * width * channels * SizeOf(dtype)) return kSizeMismatch;
        std::memcpy(out, data, static_cast<size_t>(size));
        return kOk;
      default:
        return kUnsupported;
    }
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace jaxdali
