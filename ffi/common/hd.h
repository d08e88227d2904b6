// Marks functions that CUDA kernels share with the CPU handlers.
#ifndef JAXDALI_FFI_COMMON_HD_H_
#define JAXDALI_FFI_COMMON_HD_H_

#ifdef __CUDACC__
#define JAXDALI_HD __host__ __device__
#define JAXDALI_NOINLINE __noinline__  // compiled once instead of into every kernel
#else
#define JAXDALI_HD
#define JAXDALI_NOINLINE
#endif

#endif  // JAXDALI_FFI_COMMON_HD_H_
