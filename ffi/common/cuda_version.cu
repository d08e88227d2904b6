// The answers of a real CUDA module, then those of the emulation, which has neither CUDA nor a driver.
#include "ffi/common/cuda_version.h"

namespace jaxdali {

#if defined(__CUDACC__)

// CUDA's number for a version as text: 12040 is "12.4".
static std::string Version(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

std::map<std::string, std::string> CudaBuildInfo() {
  return {{"cuda", Version(CUDART_VERSION)}, {"architectures", JAXDALI_ARCHITECTURES}};
}

// Returns "" if the machine's driver can run the kernels, or if there is no driver; otherwise the reason.
std::string DriverProblem() {
  int driver = 0;
  // This loads the driver's library but makes no context, so importing costs no GPU memory and survives a fork.
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "";
  // A driver runs programs of its own major version, and of older ones.
  if (driver / 1000 >= CUDART_VERSION / 1000) return "";
  return "built with CUDA " + Version(CUDART_VERSION) + ", and this machine's driver has CUDA " + Version(driver);
}

#else

std::map<std::string, std::string> CudaBuildInfo() { return {{"cuda", "none"}, {"architectures", "emulated"}}; }

std::string DriverProblem() { return ""; }

#endif

}  // namespace jaxdali
