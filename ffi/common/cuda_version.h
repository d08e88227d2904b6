#ifndef JAXDALI_FFI_COMMON_CUDA_VERSION_H_
#define JAXDALI_FFI_COMMON_CUDA_VERSION_H_

#include <map>
#include <string>

namespace jaxdali {

// What the CUDA module was built with; for jaxdali.show_config().
std::map<std::string, std::string> CudaBuildInfo();

// Why the driver of this machine can't run what was built; empty when it can, or when there is no driver.
std::string DriverProblem();

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_CUDA_VERSION_H_
