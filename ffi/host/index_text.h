// The text files that say where records are.
#ifndef JAXDALI_FFI_HOST_INDEX_TEXT_H_
#define JAXDALI_FFI_HOST_INDEX_TEXT_H_

#include <cstdint>
#include <string_view>

namespace jaxdali {

// Whole numbers >= 0 between white space. Returns how many were read; `*bad`: offset of what is none, or -1.
int64_t ParseIntegers(std::string_view text, int64_t* out, int64_t room, int64_t* bad);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_INDEX_TEXT_H_
