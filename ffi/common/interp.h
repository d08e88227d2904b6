// The filters for resizing and warping.
#ifndef JAXDALI_FFI_COMMON_INTERP_H_
#define JAXDALI_FFI_COMMON_INTERP_H_

#include <cstdint>

namespace jaxdali {

// kArea: the mean of the source pixels that an output pixel covers. DALI does not have it; only the kernel `resample`
// does.
enum class Interp : int32_t { kNN, kLinear, kCubic, kLanczos3, kTriangular, kGaussian, kArea };

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_INTERP_H_
