// Wide accesses to memory, of 8 and 16 bytes: one instruction each on a GPU. Addresses must be multiples of the size.
#ifndef JAXDALI_FFI_CUDA_JPEG_WORDS_H_
#define JAXDALI_FFI_CUDA_JPEG_WORDS_H_

#include <cstdint>
#include <cstring>

#include "ffi/common/hd.h"

namespace jaxdali::jpeg {

struct Words2 {
  uint32_t word[2];
};
struct Words4 {
  uint32_t word[4];
};

// Loads two words from a multiple of 8 bytes. The host's compiler, which must not read them as another type, copies.
JAXDALI_HD inline Words2 Load2(const void* from) {
#if defined(__CUDA_ARCH__)
  const uint2 v = *static_cast<const uint2*>(from);
  return {{v.x, v.y}};
#else
  Words2 w;
  std::memcpy(&w, __builtin_assume_aligned(from, sizeof w), sizeof w);
  return w;
#endif
}

// The same for four words, from a multiple of 16 bytes.
JAXDALI_HD inline Words4 Load4(const void* from) {
#if defined(__CUDA_ARCH__)
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
#else
  Words4 w;
  std::memcpy(&w, __builtin_assume_aligned(from, sizeof w), sizeof w);
  return w;
#endif
}

// Stores two words at a multiple of 8 bytes, as Load2 loads them.
JAXDALI_HD inline void Store2(void* to, const Words2& w) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint2*>(to) = make_uint2(w.word[0], w.word[1]);
#else
  std::memcpy(__builtin_assume_aligned(to, sizeof w), &w, sizeof w);
#endif
}

// Stores four words at a multiple of 16 bytes.
JAXDALI_HD inline void Store4(void* to, const Words4& w) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint4*>(to) = make_uint4(w.word[0], w.word[1], w.word[2], w.word[3]);
#else
  std::memcpy(__builtin_assume_aligned(to, sizeof w), &w, sizeof w);
#endif
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_WORDS_H_
