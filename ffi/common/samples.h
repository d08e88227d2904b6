// What the custom calls of all kernels have on a device.
#ifndef JAXDALI_FFI_COMMON_SAMPLES_H_
#define JAXDALI_FFI_COMMON_SAMPLES_H_

#include <cstdint>

namespace jaxdali {

struct Samples {
  int n;
  const int32_t* present;  // [n]
  int32_t* status;         // [n], a Status each, written by the kernel
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_SAMPLES_H_
