// The arrays on a GPU that the launches of all kernels get beside their operands.
#ifndef JAXDALI_FFI_COMMON_SAMPLES_H_
#define JAXDALI_FFI_COMMON_SAMPLES_H_

#include <cstdint>

namespace jaxdali {

inline constexpr int64_t kPlanBytes = 512;  // working memory for each sample: its plan and two counts (launch.h)

struct Samples {
  int n;
  const int32_t* present;  // [n]
  int32_t* status;         // [n], a Status for each sample, written by the kernel
  uint8_t* plans;          // [n * kPlanBytes], working memory for the plans of the samples
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_SAMPLES_H_
