// Gray pixels as RGB.
#ifndef JAXDALI_FFI_COMMON_TRIPLE_H_
#define JAXDALI_FFI_COMMON_TRIPLE_H_

#include <cstdint>

#include "ffi/common/simd.h"

namespace jaxdali {

#if defined(JAXDALI_SIMD)
// Returns how many bytes it has written three times.
JAXDALI_SIMD inline int64_t TripleSimd(const uint8_t* from, int64_t n, uint8_t* to) {
  // The 48 bytes of the result, in three registers: each input byte three times.
  const __m128i first = _mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5);
  const __m128i second = _mm_setr_epi8(5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9, 10, 10);
  const __m128i third = _mm_setr_epi8(10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    __m128i* out = reinterpret_cast<__m128i*>(to + 3 * i);
    _mm_storeu_si128(out, _mm_shuffle_epi8(v, first));
    _mm_storeu_si128(out + 1, _mm_shuffle_epi8(v, second));
    _mm_storeu_si128(out + 2, _mm_shuffle_epi8(v, third));
  }
  return i;
}
#endif

// Writes each of n bytes three times.
inline void Triple(const uint8_t* from, int64_t n, uint8_t* to) {
  int64_t i = 0;
#if defined(JAXDALI_SIMD)
  if (kHasSimd) i = TripleSimd(from, n, to);
#endif
  for (; i < n; i++) to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = from[i];
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_TRIPLE_H_
