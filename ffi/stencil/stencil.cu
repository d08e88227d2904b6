// Window reductions on CUDA: compiles weighted sums, and chooses among all of them. stencil_kernel.h has the kernels of
// sums, maxima and minima; stencil_median.cu has that of medians.
#include "ffi/stencil/stencil.h"
#include "ffi/stencil/stencil_kernel.h"

namespace jaxdali {

template const char* LaunchPlans(const ReductionPlanner&, const WorkSplit&, void*);

// Launches the kernel of the reduction. Returns null or an error message.
const char* LaunchStencil(const StencilBatch& b, const Samples& samples, void* stream) {
  switch (b.reduction) {
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
