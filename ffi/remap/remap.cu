// The gather by a coordinate map on CUDA. One thread makes all channels of an output pixel.
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/remap/remap.h"

namespace jaxdali {
namespace {

template <class T, Interp kSampling>
struct RemapImages : RemapBatch {
  struct Plan {
    int64_t units;  // pixels, or elements to copy
    RemapArgs args;
    bool applied;  // false: elements are copied
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args); e != kOk) return e;
    s->applied = applied[i] || in.size(i) == 0;
    s->units = s->applied ? s->args.frames * s->args.out_size[0] * s->args.out_size[1] : in.size(i);
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const RemapArgs& a = s.args;
    const T* from = static_cast<const T*>(a.in);
    T* to = static_cast<T*>(a.out);
    if (!s.applied) {
      for (int64_t k = first; k < end; k += kThreads) to[k] = from[k];
      return;
    }
    for (int64_t k = first; k < end; k += kThreads) {
      const Quotient row = Divide(k, a.out_size[0]), frame = Divide(row.quotient, a.out_size[1]);
      // A switch for each pixel costs nothing compared with its reads. A kernel for each kind of points would cost
      // minutes of nvcc.
      const Point point =
          WithPoints(points, [&](auto p) { return SourcePoint<p.value>(a, frame.quotient, row.rest, frame.rest); });
      SamplePixel<T, kSampling>(a, from + frame.quotient * a.in_size[0] * a.in_size[1] * a.channels, point,
                                to + k * a.channels);
    }
  }
};

}  // namespace

const char* LaunchRemap(const RemapBatch& b, const Samples& samples, void* stream) {
  return WithSampling(b.in.dtype, b.sampling, [&](auto t, auto sampling) {
    return Launch(RemapImages<decltype(t), sampling.value>{b}, samples, stream);
  });
}

}  // namespace jaxdali
