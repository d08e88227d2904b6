// Marks functions that CUDA kernels share with the CPU handlers.
#ifndef JAXDALI_FFI_COMMON_HD_H_
#define JAXDALI_FFI_COMMON_HD_H_

#ifdef __CUDACC__
#define JAXDALI_HD __host__ __device__
#define JAXDALI_NOINLINE __noinline__     // compiled once instead of into every kernel
#define JAXDALI_UNROLL _Pragma("unroll")  // for a loop over an array that has to stay in registers
#define JAXDALI_UNROLL_BY(n) _Pragma(JAXDALI_TEXT(unroll n))
#define JAXDALI_TEXT(x) #x
#else
#define JAXDALI_HD
#define JAXDALI_NOINLINE
#define JAXDALI_UNROLL
#define JAXDALI_UNROLL_BY(n)
#endif

#endif  // JAXDALI_FFI_COMMON_HD_H_
