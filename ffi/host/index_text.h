// Parses text files that list the offsets of records.
#ifndef JAXDALI_FFI_HOST_INDEX_TEXT_H_
#define JAXDALI_FFI_HOST_INDEX_TEXT_H_

#include <cstdint>
#include <string_view>

namespace jaxdali {

// Parses nonnegative integers that white space separates, at most `room` of them. Returns how many were read. `*bad`:
// offset of the first text that is not an integer, or has no room; or -1.
int64_t ParseIntegers(std::string_view text, int64_t* out, int64_t room, int64_t* bad);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_INDEX_TEXT_H_
