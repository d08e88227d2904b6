// Functions of CPU kernels for machines with AVX2: marked JAXDALI_AVX2 they may be called where kHasAvx2 is true; what
// they call and is marked JAXDALI_INLINE becomes part of them.
#ifndef JAXDALI_FFI_COMMON_SIMD_H_
#define JAXDALI_FFI_COMMON_SIMD_H_

#define JAXDALI_INLINE __attribute__((always_inline)) inline

#if defined(__x86_64__)

#include <immintrin.h>

// Without FMA: a product and a sum are rounded one by one, as they are without AVX2 and in CUDA kernels.
#define JAXDALI_AVX2 __attribute__((target("avx2,f16c")))
#define JAXDALI_AVX2_FMA __attribute__((target("avx2,f16c,fma")))

namespace jaxdali {
inline const bool kHasAvx2 =
    __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma");
}  // namespace jaxdali

#endif  // defined(__x86_64__)

#endif  // JAXDALI_FFI_COMMON_SIMD_H_
