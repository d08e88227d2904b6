// JPEG on the CPU: by the decoder of ffi/jpeg, and what that leaves by libjpeg-turbo, to the same bits.
#include <algorithm>
#include <vector>

#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/jpeg/baseline.h"

namespace jaxdali {

bool DecodeJpegByBaseline(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                          jpeg::BaselineDecoder* decoder, RasterOutput* out) {
  if (options.fast_idct) return false;
  const bool gray = options.type == ImageType::kGray || (options.type == ImageType::kAny && info.channels == 1);
  const jpeg::PixelFormat format = gray                              ? jpeg::PixelFormat::kGray
                                   : options.type == ImageType::kBgr ? jpeg::PixelFormat::kBgr
                                                                     : jpeg::PixelFormat::kRgb;
  if (!decoder->Start(data, size, format)) return false;
  if (decoder->width() != info.width || decoder->height() != info.height) return false;
  if ((decoder->components() == 1) != (info.channels == 1)) return false;
  decoder->Select({info.region_y, info.region_x, info.region_h, info.region_w});

  const bool ordered = options.type != ImageType::kYcbcr, in_place = ordered && out->in_place(8);
  const int channels = gray ? 1 : 3;
  const int64_t stride = int64_t{info.width} * channels, left = int64_t{info.region_x} * channels;
  thread_local std::vector<uint8_t> rows;  // kRows of them, the stored width each, of which the region's part is filled
  if (!in_place && static_cast<int64_t>(rows.size()) < kRows * stride) rows.resize(static_cast<size_t>(kRows * stride));
  out->Reserve(8);
  const int64_t end = out->end_row();
  for (int64_t y = out->first_row(); y < end; y += kRows) {
    const int n = static_cast<int>(std::min<int64_t>(kRows, end - y));
    for (int r = 0; r < n; r++)
      if (!decoder->NextRow(in_place ? out->row(y + r) : rows.data() + r * stride + left)) return false;
    if (in_place) continue;
    if (ordered)
      out->PutOrdered(y, n, rows.data());
    else
      out->Put(y, n, rows.data(), 3, 8);
  }
  return true;
}

Status DecodeJpeg(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out) {
  thread_local jpeg::BaselineDecoder decoder;
  // The portable kernels take 1.7 times libjpeg-turbo's time, which has SIMD code for those CPUs.
  static const bool is_faster = &jpeg::BestKernels() != &jpeg::kPortableKernels;
  if (is_faster && DecodeJpegByBaseline(data, size, info, options, &decoder, out)) return kOk;
  return DecodeJpegByTurbo(data, size, info, options, out);
}

}  // namespace jaxdali
