// Page-locked memory for the operands of programs on GPUs. ffi/README.md (What was tried) has the measurements.
#ifndef JAXDALI_FFI_COMMON_PINNED_H_
#define JAXDALI_FFI_COMMON_PINNED_H_

#include <cstdint>

namespace jaxdali {

// Allocates page-locked memory of the host, from which a GPU copies by itself. Returns null if there is none.
void* AllocatePinned(int64_t bytes, int device);
// It may wait for what runs on the GPU.
void FreePinned(void* memory, int device);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_PINNED_H_
