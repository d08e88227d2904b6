#ifndef JAXDALI_FFI_COMMON_BUILD_INFO_H_
#define JAXDALI_FFI_COMMON_BUILD_INFO_H_

#include <map>
#include <string>

namespace jaxdali {

// What this module was built with, and the SIMD level of the machine it runs on; for jaxdali.show_config().
std::map<std::string, std::string> BuildInfo();

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_BUILD_INFO_H_
