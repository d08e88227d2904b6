// Marks functions that CUDA kernels share with the CPU handlers.
#ifndef JAXDALI_FFI_COMMON_HD_H_
#define JAXDALI_FFI_COMMON_HD_H_

#ifdef __CUDACC__
#define JAXDALI_HD __host__ __device__
#else
#define JAXDALI_HD
#endif

#endif  // JAXDALI_FFI_COMMON_HD_H_
