// Window reductions on CUDA: weighted sums, and the choice among all of them.
#include "ffi/stencil/stencil.h"
#include "ffi/stencil/stencil_kernel.h"

namespace jaxdali {

template const char* LaunchPlans(const ReductionPlanner&, const Parts&, void*);

const char* LaunchStencil(const StencilBatch& b, const Samples& samples, void* stream) {
  switch (b.what) {
    case StencilReduction::kSum:
      return LaunchWindows<Sum>(b, samples, stream);
    case StencilReduction::kMax:
      return LaunchWindows<Extreme<true>>(b, samples, stream);
    case StencilReduction::kMin:
      return LaunchWindows<Extreme<false>>(b, samples, stream);
    default:
      return LaunchMedians(b, samples, stream);
  }
}

}  // namespace jaxdali
