// The status of a sample in a call of several stages (ffi/chain). Kernels that may be a stage on GPUs include it.
#ifndef JAXDALI_FFI_COMMON_STAGES_H_
#define JAXDALI_FFI_COMMON_STAGES_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int32_t kStatusesOfStage = 256;  // more than there are

// The status with the stage that it is from: code + kStatusesOfStage * stage.
JAXDALI_HD inline Status InStage(int stage, Status s) {
  return s == kOk ? kOk : static_cast<Status>(s + kStatusesOfStage * stage);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_STAGES_H_
