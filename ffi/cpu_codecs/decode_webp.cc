// WebP on the CPU by libwebp: still images, lossy and lossless, with alpha or without. Regions are cropped by libwebp,
// except for scaled images.
#include <algorithm>

#include "ffi/common/kept_memory.h"
#include "ffi/cpu_codecs/raster_output.h"

#if defined(JAXDALI_WEBP)
#include <webp/decode.h>
#endif

namespace jaxdali {

#if defined(JAXDALI_WEBP)
const bool kWebp = true;

namespace {

// libwebp's upsampling of chroma looks this far, so a cropped image differs from the crop of an image only here.
constexpr int kMargin = 2;

// The status for a result of libwebp.
Status StatusOf(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OK:
      return kOk;
    case VP8_STATUS_OUT_OF_MEMORY:
      return kOutOfMemory;
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return kTruncated;
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return kUnsupported;
    default:
      return kCorrupt;
  }
}

// Memory of this thread for pixels that need conversion.
uint8_t* PixelMemory(int64_t bytes) {
  thread_local KeptMemory memory;
  return static_cast<uint8_t*>(memory.OfSize(bytes));
}

}  // namespace

// Decodes the region of a still image: straight to the output where its pixels have the output's form, otherwise into
// this thread's memory, from which `out` takes the rows.
Status DecodeWebp(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return kInternal;
  const auto bytes = static_cast<size_t>(size);
  if (const Status status = StatusOf(WebPGetFeatures(data, bytes, &config.input)); status != kOk) return status;
  if (config.input.has_animation) return kUnsupported;
  const unsigned scale =
      ScaleTo(static_cast<unsigned>(config.input.width), static_cast<unsigned>(config.input.height), info);
  if (!scale) return kSizeMismatch;
  if (scale > 1) {
    config.options.use_scaling = 1;
    config.options.scaled_width = info.width, config.options.scaled_height = info.height;
  }

  // The rows and columns to decode. Chroma has a sample for two of each, so they begin at even numbers. A scaled image
  // is decoded whole, because libwebp crops before it scales.
  const bool is_cropped = !out->whole() && scale == 1;
  const int top = is_cropped ? std::max(info.region_y - kMargin, 0) & ~1 : 0;
  const int left = is_cropped ? std::max(info.region_x - kMargin, 0) & ~1 : 0;
  const int height = (is_cropped ? std::min(info.region_y + info.region_h + kMargin, info.height) : info.height) - top;
  const int width = (is_cropped ? std::min(info.region_x + info.region_w + kMargin, info.width) : info.width) - left;
  if (is_cropped) {
    config.options.use_cropping = 1;
    config.options.crop_top = top, config.options.crop_left = left;
    config.options.crop_height = height, config.options.crop_width = width;
  }

  // Alpha is decoded only where it is part of the output.
  const bool has_alpha = options.type == ImageType::kAny && info.channels == 4;
  const bool is_bgr = options.type == ImageType::kBgr;
  const int channels = has_alpha ? 4 : 3;
  config.output.colorspace = has_alpha ? MODE_RGBA : is_bgr ? MODE_BGR : MODE_RGB;
  const bool has_output_order =
      has_alpha || is_bgr || options.type == ImageType::kRgb || options.type == ImageType::kAny;
  const bool is_direct = out->whole() && has_output_order && out->direct(/*depth=*/8);
  const int64_t stride = int64_t{width} * channels;
  uint8_t* pixels = is_direct ? out->row(0) : PixelMemory(stride * height);
  // libwebp writes to this memory instead of its own.
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = static_cast<size_t>(stride * height);
  if (const Status status = StatusOf(WebPDecode(data, bytes, &config)); status != kOk || is_direct) return status;

  out->Narrow(left, width);
  out->Reserve(/*depth=*/8);
  const int64_t end = out->end_row();
  for (int64_t y = out->first_row(); y < end; y += kRows) {
    const int n = static_cast<int>(std::min<int64_t>(kRows, end - y));
    const uint8_t* rows = pixels + (y - top) * stride;
    if (has_output_order)
      out->PutOrdered(y, n, rows);
    else
      out->Put(y, n, rows, channels, /*depth=*/8);
  }
  return kOk;
}
#else
const bool kWebp = false;

Status DecodeWebp(const uint8_t*, int64_t, const ImageInfo&, const DecodeOptions&, RasterOutput*) {
  return kUnsupported;
}
#endif

}  // namespace jaxdali
