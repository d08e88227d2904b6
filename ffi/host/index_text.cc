// Integers have at most 18 digits, so that they fit into 63 bits. A longer one counts as bad text.
#include "ffi/host/index_text.h"

namespace jaxdali {

// Parses integers between white space. Returns their number; `*bad`: the offset of the first bad text, or -1.
int64_t ParseIntegers(std::string_view text, int64_t* out, int64_t room, int64_t* bad) {
  int64_t count = 0;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  *bad = -1;
  for (;;) {
    while (p < end && is_space(*p)) p++;
    if (p == end) return count;
    const char* const start = p;
    int64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9' && p - start < 18; p++) x = 10 * x + (*p - '0');
    if (p == start || (p < end && !is_space(*p)) || count == room) {
      *bad = start - text.data();
      return count;
    }
    out[count++] = x;
  }
}

}  // namespace jaxdali
