#include "ffi/common/pinned.h"

#if defined(__CUDACC__)
#include <thread>
#else
#include <cstdlib>
#endif

namespace jaxdali {

#if defined(__CUDACC__)

void* AllocatePinned(int64_t bytes, int device) {
  void* memory = nullptr;
  std::thread([&memory, bytes, device] {  // in a thread of its own, since it sets the current device of its thread
    // Portable: all GPUs copy from it.
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable) != cudaSuccess)
      memory = nullptr;
  })
      .join();
  return memory;
}

void FreePinned(void* memory) { cudaFreeHost(memory); }

#else  // the emulation

void* AllocatePinned(int64_t bytes, int) { return std::malloc(static_cast<size_t>(bytes)); }

void FreePinned(void* memory) { std::free(memory); }

#endif

}  // namespace jaxdali
