// Window reductions on CUDA, with one thread per element.
#include "ffi/common/launch.h"
#include "ffi/stencil/stencil.h"

namespace jaxdali {
namespace {

struct Elements : StencilBatch {
  struct Plan : StencilArgs {
    int64_t units;  // elements
  };

  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    a->units = a->Size();
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& a, int64_t first, int64_t end) const {
    for (int64_t i = first; i < end; i += kThreads) {
      Place p;
      Quotient q = Divide(i, a.inner);
      p.inner = q.rest;
      for (int k = 2; k >= 0; k--) {
        q = Divide(q.quotient, a.out_n[k]);
        p.first[k] = q.rest - a.anchor[k];
      }
      p.outer = q.quotient;
      StoreElement(out.dtype, a.out, i, what == StencilReduction::kMedian ? Median(a, p) : Reduced(a, p));
    }
  }

 private:
  struct Place {
    int64_t outer, inner, first[3];
  };

  // Calls f(value, tap) for the elements of a window; `tap` counts them. Maxima and minima skip elements beyond a
  // constant border.
  template <class F>
  JAXDALI_HD void ForEach(const StencilArgs& a, const Place& p, F f) const {
    const bool left_out = what == StencilReduction::kMax || what == StencilReduction::kMin;
    int64_t tap = 0;
    for (int64_t z = 0; z < a.window[0]; z++) {
      const int64_t from_z = Inside(border, p.first[0] + z, a.n[0]);
      for (int64_t y = 0; y < a.window[1]; y++) {
        const int64_t from_y = Inside(border, p.first[1] + y, a.n[1]);
        for (int64_t x = 0; x < a.window[2]; x++, tap++) {
          const int64_t from_x = Inside(border, p.first[2] + x, a.n[2]);
          if (from_z < 0 || from_y < 0 || from_x < 0) {
            if (!left_out) f(a.fill, tap);
            continue;
          }
          const int64_t at = (((p.outer * a.n[0] + from_z) * a.n[1] + from_y) * a.n[2] + from_x) * a.inner + p.inner;
          f(LoadElement<float>(in.dtype, a.in, at), tap);
        }
      }
    }
  }
  JAXDALI_HD float Reduced(const StencilArgs& a, const Place& p) const {
    float result = what == StencilReduction::kSum ? 0.0f : what == StencilReduction::kMax ? -INFINITY : INFINITY;
    ForEach(a, p, [&](float v, int64_t tap) {
      if (what == StencilReduction::kSum)
        result += v * a.weights[tap];
      else if (what == StencilReduction::kMax ? v > result : v < result)
        result = v;
    });
    return result;
  }
  // The value for which less than half of the window is smaller, and more than half is smaller or equal.
  JAXDALI_HD float Median(const StencilArgs& a, const Place& p) const {
    const int64_t rank = a.Taps() / 2;
    float result = 0;
    ForEach(a, p, [&](float v, int64_t) {
      int64_t below = 0, same = 0;
      ForEach(a, p, [&](float other, int64_t) {
        below += other < v;
        same += other == v;
      });
      if (below <= rank && rank < below + same) result = v;
    });
    return result;
  }
};

}  // namespace

const char* LaunchStencil(const StencilBatch& b, const Samples& samples, void* stream) {
  return Launch(Elements{b}, samples, stream);
}

}  // namespace jaxdali
