// Separable filters on CUDA: one launch per axis, innermost first, and one thread per element. Intermediate results are
// floats in the working memory.
#include "ffi/common/launch.h"
#include "ffi/filter/filter.h"

namespace jaxdali {
namespace {

struct AlongAxis : FilterBatch {
  int axis;           // one of the three
  const float* from;  // null: the input
  float* to;          // null: the output
  struct Plan : FilterArgs {
    int64_t units;  // elements
  };

  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    if (from) a->in = from + out.start(i);
    if (to) a->out = to + out.start(i);
    a->units = a->outer * a->n[0] * a->n[1] * a->n[2] * a->inner;
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& a, int64_t first, int64_t end) const {
    int64_t stride = a.inner;
    for (int k = 2; k > axis; k--) stride *= a.n[k];
    const int64_t n = a.n[axis];
    const int taps = a.taps[axis], before = taps / 2;
    for (int64_t i = first; i < end; i += kThreads) {
      const int64_t at = Divide(Divide(i, stride).quotient, n).rest, base = i - at * stride;
      float sum = 0;
      for (int k = 0; k < taps; k++) {
        const int64_t e = base + Reflect(at - before + k, n) * stride;
        const float v = from ? static_cast<const float*>(a.in)[e] : LoadElement<float>(a.in_type, a.in, e);
#if defined(__CUDA_ARCH__)
        sum = __fmaf_rn(v, a.window[axis][k], sum);
#else
        sum += v * a.window[axis][k];
#endif
      }
      if (to)
        static_cast<float*>(a.out)[i] = sum;
      else
        StoreElement(a.out_type, a.out, i, sum);
    }
  }
};

}  // namespace

const char* LaunchFilter(const FilterBatch& b, const Samples& samples, void* stream) {
  if (b.scratch_size < b.out.capacity * (b.axes - 1)) return "filter: the working memory is too small";
  float* buffers[2] = {b.scratch, b.scratch + b.out.capacity};
  const float* from = nullptr;
  for (int k = 0; k < b.axes; k++) {
    float* to = k + 1 < b.axes ? buffers[k] : nullptr;
    if (const char* what = Launch(AlongAxis{b, 2 - k, from, to}, samples, stream)) return what;
    from = to;
  }
  return nullptr;
}

}  // namespace jaxdali
