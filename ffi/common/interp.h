// The filters for resizing and warping.
#ifndef JAXDALI_FFI_COMMON_INTERP_H_
#define JAXDALI_FFI_COMMON_INTERP_H_

#include <cstdint>

namespace jaxdali {

// kArea: the mean of what an output pixel covers. DALI does not have it, and only the kernel `resample` knows it.
enum class Interp : int32_t { kNN, kLinear, kCubic, kLanczos3, kTriangular, kGaussian, kArea };

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_INTERP_H_
