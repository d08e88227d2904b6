// Page-locked memory by the CUDA runtime. The emulation takes it from malloc.
#include "ffi/common/pinned.h"

#if defined(__CUDACC__)
#include <system_error>
#include <thread>
#else
#include <cstdlib>
#endif

namespace jaxdali {

#if defined(__CUDACC__)

// Calls f where `device` is the current one: in a thread of its own, whose current device is nobody else's. Returns
// false if no thread can be started.
template <class F>
static bool OnDevice(int device, F f) {
  try {
    std::thread([&f, device] {
      if (cudaSetDevice(device) == cudaSuccess) f();
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

// Returns null if CUDA can't allocate the memory.
void* AllocatePinned(int64_t bytes, int device) {
  void* memory = nullptr;
  OnDevice(device, [&] {
    // Portable: all GPUs copy from it.
    if (cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable) != cudaSuccess) memory = nullptr;
  });
  return memory;
}

void FreePinned(void* memory, int device) {
  OnDevice(device, [=] { cudaFreeHost(memory); });
}

#else  // the emulation

void* AllocatePinned(int64_t bytes, int) { return std::malloc(static_cast<size_t>(bytes)); }

void FreePinned(void* memory, int) { std::free(memory); }

#endif

}  // namespace jaxdali
