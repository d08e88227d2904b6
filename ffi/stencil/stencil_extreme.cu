// Compiles maxima and minima of windows (stencil_kernel.h).
#include "ffi/stencil/stencil_kernel.h"

namespace jaxdali {

template const char* LaunchWindows<Extreme<true>>(const StencilBatch&, const Samples&, void*);
template const char* LaunchWindows<Extreme<false>>(const StencilBatch&, const Samples&, void*);

}  // namespace jaxdali
