#ifndef JAXDALI_FFI_COMMON_HUGE_PAGES_H_
#define JAXDALI_FFI_COMMON_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace jaxdali {

// Requests huge pages for a large buffer that is about to be written. XLA allocates buffers of this size with mmap for
// every batch; faulting them in by 4 KiB took 0.5 ms of system time per image of 0.27 megapixels (measured).
inline void AdviseHugePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) & ~(kHuge - 1);
  uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHuge - 1);
  if (begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // only a hint, so failing is harmless
#endif
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_HUGE_PAGES_H_
