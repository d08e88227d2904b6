// CUDA version and GPU architectures of the module `_cuda`.
#ifndef JAXDALI_FFI_COMMON_CUDA_VERSION_H_
#define JAXDALI_FFI_COMMON_CUDA_VERSION_H_

#include <map>
#include <string>

namespace jaxdali {

// How the CUDA module was built; for jaxdali.show_config().
std::map<std::string, std::string> CudaBuildInfo();

// Why the driver of this machine can't run this build. Empty if it can, or if there is no driver.
std::string DriverProblem();

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_CUDA_VERSION_H_
