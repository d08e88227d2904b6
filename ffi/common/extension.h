// Kernels in a library outside jaxdali's module. Include this file first, then write the kernel as ffi/common/kernel.h
// says, and compile:
//
//   c++ -std=c++20 -O3 -fPIC -shared $(python -m jaxdali.extend) threshold.cc -o libthreshold.so
//
// In Python, `jaxdali.extend.register_kernel("threshold", "libthreshold.so")` loads the library and gives it access to
// the threads of the pipeline. With -DJAXDALI_CUDA the same binding is that of the CUDA kernel.
#ifndef JAXDALI_FFI_COMMON_EXTENSION_H_
#define JAXDALI_FFI_COMMON_EXTENSION_H_

#if defined(JAXDALI_FFI_COMMON_THREAD_POOL_H_) && !defined(JAXDALI_EXTENSION)
#error "include ffi/common/extension.h first"
#endif
#ifndef JAXDALI_EXTENSION
#define JAXDALI_EXTENSION
#endif

#include "ffi/common/kernel.h"

// Returns the version that the library was built for. `register_kernel` refuses any other version.
extern "C" __attribute__((weak, visibility("default"))) int jaxdali_connect(jaxdali::PoolRun* run) {
  jaxdali::RunOnPool = run;
  return jaxdali::kExtensionVersion;
}

#endif  // JAXDALI_FFI_COMMON_EXTENSION_H_
