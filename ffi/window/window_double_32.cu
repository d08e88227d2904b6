// Compiles ComputedWindows (window_kernel.h) for any element types, computed in double, with 32-bit offsets.
#include "ffi/window/window_kernel.h"

namespace jaxdali {

template const char* LaunchComputedWindows<double, AnyType, AnyType, uint32_t>(const WindowBatch&, const Samples&,
                                                                               void*);

}  // namespace jaxdali
