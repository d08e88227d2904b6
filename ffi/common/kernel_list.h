// The kernels that a library launches, listed as soon as it is loaded. Compiling LaunchBlocks<Kernel> adds the kernel's
// entry to this list (launch.h), so none can be forgotten.
#ifndef JAXDALI_FFI_COMMON_KERNEL_LIST_H_
#define JAXDALI_FFI_COMMON_KERNEL_LIST_H_

#include <cstdint>
#include <deque>
#include <string>

namespace jaxdali {

struct ListedKernel {
  std::string name;      // its type
  const void* function;  // the CUDA function; null in the emulation
  int64_t launches;      // counted by the emulation
};

// Hidden, like the entries (launch.h): a visible symbol would be merged into one list for all libraries of a process.
__attribute__((visibility("hidden"))) inline std::deque<ListedKernel>& ListedKernels() {
  static std::deque<ListedKernel> kernels;
  return kernels;
}

inline ListedKernel& ListKernel(std::string name, const void* function) {
  return ListedKernels().emplace_back(ListedKernel{std::move(name), function, 0});
}

// The name of a kernel's type, which compilers have in the text of a function's signature.
template <class Kernel>
std::string NameOfKernel() {
  const std::string text = __PRETTY_FUNCTION__;  // ... [with Kernel = NAME; ...]
  const size_t key = text.find("Kernel = ");     // nine characters
  if (key == std::string::npos) return text;
  return text.substr(key + 9, text.find_first_of(";]", key) - key - 9);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_KERNEL_LIST_H_
