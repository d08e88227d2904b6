// The gather by a coordinate map on CUDA: one thread per output pixel, all its channels.
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/remap/remap.h"

namespace jaxdali {
namespace {

template <class T, Sampling kSampling>
struct RemapImages : RemapBatch {
  struct Shared {
    RemapArgs args;
    int64_t elements;  // to copy; 0: the map is applied
  };

  JAXDALI_HD Status Prepare(int i, Shared* s) const {
    s->elements = applied[i] ? 0 : in.size(i);
    return Sample(i, &s->args);
  }
  JAXDALI_HD void Share(int, Shared*) const {}
  JAXDALI_HD void Work(const Shared& s, int64_t first_unit, int64_t step) const {
    const RemapArgs& a = s.args;
    const T* from = static_cast<const T*>(a.in);
    T* to = static_cast<T*>(a.out);
    for (int64_t k = first_unit; k < s.elements; k += step) to[k] = from[k];
    if (s.elements > 0) return;
    const int64_t pixels = a.frames * a.out_size[0] * a.out_size[1];
    for (int64_t k = first_unit; k < pixels; k += step) {
      const Quotient row = Divide(k, a.out_size[0]), frame = Divide(row.quotient, a.out_size[1]);
      // The same way for all threads: a switch for each pixel costs nothing beside its reads, a kernel for each way
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
