// Functions of CPU kernels for machines with vectors (vectors.h): marked JAXDALI_SIMD they may be called where kHasSimd
// is true; what they call and is marked JAXDALI_INLINE becomes part of them. On x86-64 that is found out at run time,
// and such functions are for AVX2; aarch64 always has NEON.
#ifndef JAXDALI_FFI_COMMON_SIMD_H_
#define JAXDALI_FFI_COMMON_SIMD_H_

#include "ffi/common/vectors.h"

#if defined(__x86_64__)

// Without FMA: a product and a sum are rounded one by one, as they are without AVX2 and in CUDA kernels.
#define JAXDALI_SIMD __attribute__((target("avx2,f16c")))
#define JAXDALI_SIMD_FMA __attribute__((target("avx2,f16c,fma")))
// Where 512 bits gain much, a function more for kHasAvx512.
#define JAXDALI_AVX512 __attribute__((target("avx512f,avx2,f16c,fma")))

namespace jaxdali {
inline constexpr int kSimdBytes = 32;  // of a register
inline const bool kHasSimd =
    __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma");
inline const bool kHasAvx512 = kHasSimd && __builtin_cpu_supports("avx512f");
}  // namespace jaxdali

#elif defined(JAXDALI_VECTORS)

#define JAXDALI_SIMD
#define JAXDALI_SIMD_FMA

namespace jaxdali {
inline constexpr int kSimdBytes = 16;
inline constexpr bool kHasSimd = true;
}  // namespace jaxdali

#endif

#endif  // JAXDALI_FFI_COMMON_SIMD_H_
