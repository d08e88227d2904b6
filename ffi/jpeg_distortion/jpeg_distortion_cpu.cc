// CPU kernel of JPEG compression and decompression.
#include <new>
#include <vector>

#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {

Status JpegDistortion(const JpegDistortionBatch& batch, int i) {
  JpegDistortionArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  try {
    std::vector<uint8_t> units(static_cast<size_t>(a.Units() * kMcuBytes));
    for (int64_t unit = 0; unit < a.Units(); unit++)
      for (int which = 0; which < 6; which++) jpeg::DistortBlock(a, unit, which, units.data());
    for (int64_t f = 0; f < a.frames; f++)
      for (int64_t y = 0; y < a.height; y++)
        for (int64_t x = 0; x < a.width; x++) jpeg::PutPixel(a, units.data(), f, y, x);
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
  return kOk;
}

}  // namespace jaxdali
