// JPEG compression and decompression on CUDA: one thread per block of 8 x 8 samples, then one per pixel.
#include "ffi/common/launch.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {
namespace {

template <bool kBlocks>
struct Distortion : JpegDistortionBatch {
  struct Plan {
    int64_t units;  // blocks or pixels
    JpegDistortionArgs args;
    uint8_t* coefficients;
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args, &s->coefficients); e != kOk) return e;
    s->units = kBlocks ? s->args.Units() * 6 : s->args.frames * s->args.height * s->args.width;
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const JpegDistortionArgs& a = s.args;
    if constexpr (kBlocks) {
      for (int64_t i = first; i < end; i += kThreads)
        jpeg::DistortBlock(a, i / 6, static_cast<int>(i % 6), s.coefficients);
    } else {
      for (int64_t i = first; i < end; i += kThreads) {
        const Quotient column = Divide(i, a.width), row = Divide(column.quotient, a.height);
        jpeg::PutPixel(a, s.coefficients, row.quotient, row.rest, column.rest);
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
