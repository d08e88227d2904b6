// The filters for resizing and warping.
#ifndef JAXDALI_FFI_COMMON_INTERP_H_
#define JAXDALI_FFI_COMMON_INTERP_H_

#include <cstdint>

namespace jaxdali {

enum class Interp : int32_t { kNN, kLinear, kCubic, kLanczos3, kTriangular, kGaussian };

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_INTERP_H_
