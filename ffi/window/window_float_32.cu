// Compiles ComputedWindows (window_kernel.h) for any element types, computed in float, with 32-bit offsets.
#include "ffi/window/window_kernel.h"

namespace jaxdali {

template const char* LaunchComputedWindows<float, AnyType, AnyType, uint32_t>(const WindowBatch&, const Samples&,
                                                                              void*);

}  // namespace jaxdali
