// The gather by a coordinate map on CUDA. One thread makes all channels of an output pixel.
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/remap/remap.h"

namespace jaxdali {
namespace {

struct RemapPlanner : RemapBatch {
  struct Plan {
    int64_t units;  // pixels, or elements to copy
    RemapArgs args;
    Divisor width, height;  // of the output
    bool applied;           // false: elements are copied
  };

  // Fills in the plan of sample i: what the threads that work on it need. An empty input has no elements to copy: its
  // pixels are fill.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args); e != kOk) return e;
    s->width = Divisor(s->args.out_size[0]);
    s->height = Divisor(s->args.out_size[1]);
    s->applied = applied[i] || in.size(i) == 0;
    s->units = s->applied ? s->args.frames * s->args.out_size[0] * s->args.out_size[1] : in.size(i);
    return kOk;
  }
};

template <class T, Interp kSampling>
struct RemapImages : RemapPlanner {
  using Planner = RemapPlanner;
  static constexpr int kBlocksPerSm = kSampling == Interp::kCubic ? 2 : 1;  // at most 128 registers

  // The work of a thread: pixels (or elements to copy) first, first + kThreads, ...
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const RemapArgs& a = s.args;
    const T* from = static_cast<const T*>(a.in);
    T* to = static_cast<T*>(a.out);
    if (!s.applied) {
      for (int64_t k = first; k < end; k += kThreads) to[k] = from[k];
      return;
    }
    // Bytes of images mostly have one or three channels: the loops over a known number have no index arithmetic.
    if constexpr (sizeof(T) == 1) {
      if (a.channels == 3) return Pixels<3>(s, from, to, first, end);
      if (a.channels == 1) return Pixels<1>(s, from, to, first, end);
    }
    Pixels<0>(s, from, to, first, end);
  }

 private:
  // Makes pixels first, first + kThreads, ... of C channels; 0: any number.
  template <int C>
  JAXDALI_HD void Pixels(const Plan& s, const T* from, T* to, int64_t first, int64_t end) const {
    const RemapArgs& a = s.args;
    for (int64_t k = first; k < end; k += kThreads) {
      const auto row = s.width.Divide(static_cast<uint64_t>(k)), frame = s.height.Divide(row.quotient);
      const int64_t f = static_cast<int64_t>(frame.quotient), x = static_cast<int64_t>(row.rest),
                    y = static_cast<int64_t>(frame.rest);
      // A switch for each pixel costs nothing compared with its reads. A kernel for each kind of points would cost
      // minutes of nvcc.
      const Point point = WithPoints(points, [&](auto p) { return SourcePoint<p.value>(a, f, x, y); });
      SamplePixel<T, kSampling, C>(a, from + f * a.in_size[0] * a.in_size[1] * a.channels, point, to + k * a.channels);
    }
  }
};

}  // namespace

const char* LaunchRemap(const RemapBatch& b, const Samples& samples, void* stream) {
  return WithSampling(b.in.dtype, b.sampling, [&](auto t, auto sampling) {
    return Launch(RemapImages<decltype(t), sampling.value>{{b}}, samples, stream);
  });
}

}  // namespace jaxdali
