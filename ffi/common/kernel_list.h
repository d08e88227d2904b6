// The kernels that a library launches, known as soon as it is loaded: where LaunchBlocks<Kernel> is compiled, so is the
// kernel's entry in this list (launch.h). None can be forgotten.
#ifndef JAXDALI_FFI_COMMON_KERNEL_LIST_H_
#define JAXDALI_FFI_COMMON_KERNEL_LIST_H_

#include <cstdint>
#include <deque>
#include <string>

namespace jaxdali {

struct ListedKernel {
  std::string name;      // its type
  const void* function;  // of CUDA; null in the emulation
  int64_t launches;      // counted by the emulation
};

// Hidden, as the entries are (launch.h): what is one symbol for a whole process would be one list for several
// libraries.
__attribute__((visibility("hidden"))) inline std::deque<ListedKernel>& ListedKernels() {
  static std::deque<ListedKernel> kernels;
  return kernels;
}

inline ListedKernel& ListKernel(std::string name, const void* function) {
  return ListedKernels().emplace_back(ListedKernel{std::move(name), function, 0});
}

template <class Kernel>
std::string NameOfKernel() {
  const std::string text = __PRETTY_FUNCTION__;  // ... [with Kernel = NAME; ...]
  const size_t at = text.find("Kernel = ");
  if (at == std::string::npos) return text;
  return text.substr(at + 9, text.find_first_of(";]", at) - at - 9);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_KERNEL_LIST_H_
