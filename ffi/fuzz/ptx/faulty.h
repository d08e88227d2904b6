// The cases of faulty.cu.
#ifndef JAXDALI_FFI_FUZZ_PTX_FAULTY_H_
#define JAXDALI_FFI_FUZZ_PTX_FAULTY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace jaxdali::faulty {

struct Case {
  std::string name;
  const char* (*launch)(int32_t* data);
  std::string expected;  // part of the message; empty: the kernel is right
};
const std::vector<Case>& Cases();

}  // namespace jaxdali::faulty

#endif  // JAXDALI_FFI_FUZZ_PTX_FAULTY_H_
