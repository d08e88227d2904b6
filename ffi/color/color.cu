// The linear map of channels on CUDA, with one thread per pixel.
#include "ffi/color/color.h"
#include "ffi/common/launch.h"

namespace jaxdali {
namespace {

template <class V>
struct Colors : ColorBatch {
  struct Plan {
    int64_t units;  // pixels
    const void* from;
    void* to;
    float matrix[kMaxColors * (kMaxColors + 1)];
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->units = Pixels(i);
    s->from = in.bytes(i);
    s->to = out.bytes(i);
    for (int k = 0; k < out_channels * (in_channels + 1); k++) s->matrix[k] = Matrix(i)[k];
    return s->units < 0 ? kInternal : kOk;
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t p = first; p < end; p += kThreads) {
      V pixel[kMaxColors];
      for (int k = 0; k < in_channels; k++) pixel[k] = LoadElement<V>(in.dtype, s.from, p * in_channels + k);
      for (int c = 0; c < out_channels; c++) {
        const float* m = s.matrix + c * (in_channels + 1);
        V sum = pixel[0] * static_cast<V>(m[0]);
        for (int k = 1; k < in_channels; k++) sum += pixel[k] * static_cast<V>(m[k]);
        StoreElement(out.dtype, s.to, p * out_channels + c, sum + static_cast<V>(m[in_channels]));
      }
    }
  }
};

}  // namespace

const char* LaunchColor(const ColorBatch& b, const Samples& samples, void* stream) {
  return FitsFloat(b.in.dtype) ? Launch(Colors<float>{b}, samples, stream) : Launch(Colors<double>{b}, samples, stream);
}

}  // namespace jaxdali
