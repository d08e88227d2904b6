// What JPEG does to images, on CUDA: a thread for each block of 8 x 8 samples, then one for each pixel.
#include "ffi/common/launch.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {
namespace {

template <bool kBlocks>
struct Distortion : JpegDistortionBatch {
  struct Shared {
    JpegDistortionArgs args;
    uint8_t* units;
  };

  JAXDALI_HD Status Prepare(int i, Shared* s) const { return Sample(i, &s->args, &s->units); }
  JAXDALI_HD void Share(int, Shared*) const {}
  JAXDALI_HD void Work(const Shared& s, int64_t first, int64_t step) const {
    const JpegDistortionArgs& a = s.args;
    if constexpr (kBlocks) {
      for (int64_t i = first; i < a.Units() * 6; i += step)
        jpeg::DistortBlock(a, i / 6, static_cast<int>(i % 6), s.units);
    } else {
      for (int64_t i = first; i < a.frames * a.height * a.width; i += step) {
        const Quotient column = Divide(i, a.width), row = Divide(column.quotient, a.height);
        jpeg::PutPixel(a, s.units, row.quotient, row.rest, column.rest);
      }
    }
  }
};

}  // namespace

const char* LaunchJpegDistortion(const JpegDistortionBatch& b, const Samples& samples, void* stream) {
  if (const char* what = Launch(Distortion<true>{b}, samples, stream)) return what;
  return Launch(Distortion<false>{b}, samples, stream);
}

}  // namespace jaxdali
