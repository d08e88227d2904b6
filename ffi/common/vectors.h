// Vectors for kernels on newer CPUs: AVX2's names, which neon.h implements for aarch64. Empty on other CPUs.
#ifndef JAXDALI_FFI_COMMON_VECTORS_H_
#define JAXDALI_FFI_COMMON_VECTORS_H_

#define JAXDALI_INLINE __attribute__((always_inline)) inline

#if defined(__x86_64__)
#include <immintrin.h>
#define JAXDALI_VECTORS 1
#elif defined(__aarch64__) && defined(__AARCH64EL__)
#include "ffi/common/neon.h"
#define JAXDALI_VECTORS 1
#endif

#endif  // JAXDALI_FFI_COMMON_VECTORS_H_
