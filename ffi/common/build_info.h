// Compiler and codecs of the module `_cpu`.
#ifndef JAXDALI_FFI_COMMON_BUILD_INFO_H_
#define JAXDALI_FFI_COMMON_BUILD_INFO_H_

#include <map>
#include <string>

namespace jaxdali {

// How this module was built, and the SIMD level of this machine; for jaxdali.show_config(). The text of a codec that
// was left out is "".
std::map<std::string, std::string> BuildInfo();

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_BUILD_INFO_H_
