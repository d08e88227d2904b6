// Functions of CPU kernels for machines with vectors (vectors.h). Call functions marked JAXDALI_SIMD only if kHasSimd
// is true; functions marked JAXDALI_INLINE that they call are inlined into them. On x86-64 kHasSimd is determined at
// run time, and the functions use AVX2; aarch64 always has NEON.
#ifndef JAXDALI_FFI_COMMON_SIMD_H_
#define JAXDALI_FFI_COMMON_SIMD_H_

#include "ffi/common/cpu.h"
#include "ffi/common/half.h"
#include "ffi/common/vectors.h"

#if defined(__x86_64__)

// Without FMA: products and sums are rounded separately, as they are without AVX2 and in CUDA kernels.
#define JAXDALI_SIMD __attribute__((target("avx2,f16c")))
#define JAXDALI_SIMD_FMA __attribute__((target("avx2,f16c,fma")))
// For an extra version of a function that gains much from 512 bits; call it only if kHasAvx512.
#define JAXDALI_AVX512 __attribute__((target("avx512f,avx2,f16c,fma")))

namespace jaxdali {
inline constexpr int kSimdBytes = 32;  // in a register
inline const bool kHasSimd = ThisCpu().avx2 && ThisCpu().f16c && ThisCpu().fma;
inline const bool kHasAvx512 = kHasSimd && ThisCpu().avx512f;
}  // namespace jaxdali

#elif defined(JAXDALI_VECTORS)

#define JAXDALI_SIMD
#define JAXDALI_SIMD_FMA

namespace jaxdali {
inline constexpr int kSimdBytes = 16;
inline constexpr bool kHasSimd = true;
}  // namespace jaxdali

#endif

#if defined(JAXDALI_SIMD)

namespace jaxdali {

// Converts between eight 16-bit floats (`Half` or `BFloat16`) and floats.
JAXDALI_SIMD JAXDALI_INLINE __m256 LoadFloats(const Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
JAXDALI_SIMD JAXDALI_INLINE __m256 LoadFloats(const BFloat16* from) {
  const __m256i upper = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(upper, 16));
}
JAXDALI_SIMD JAXDALI_INLINE void StoreFloats(__m256 v, Half* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
// As the constructor of BFloat16: adding 0x7FFF and the lowest bit that stays rounds half to even, and a NaN becomes
// 0x7FC0 with its sign.
JAXDALI_SIMD JAXDALI_INLINE void StoreFloats(__m256 v, BFloat16* to) {
  const __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(upper, _mm256_set1_epi32(0x8000)), _mm256_set1_epi32(0x7FC0));
  const __m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_ORD_Q));
  const __m256i rounded =
      _mm256_or_si256(_mm256_and_si256(is_number, _mm256_srli_epi32(sum, 16)), _mm256_andnot_si256(is_number, nan));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

}  // namespace jaxdali

#endif  // JAXDALI_SIMD

#endif  // JAXDALI_FFI_COMMON_SIMD_H_
