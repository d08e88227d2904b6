#include "ffi/host/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace jaxdali {

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t Crc32cBySse(uint32_t crc, const uint8_t* p, int64_t n) {
  uint64_t x = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    x = _mm_crc32_u64(x, word);
  }
  auto y = static_cast<uint32_t>(x);
  for (; n > 0; n--) y = _mm_crc32_u8(y, *p++);
  return ~y;
}
#endif

uint32_t Crc32c(uint32_t crc, const uint8_t* p, int64_t n) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Crc32cBySse(crc, p, n);
#endif
  static const auto table = [] {
    std::array<uint32_t, 256> t;
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t x = i;
      for (int k = 0; k < 8; k++) x = x >> 1 ^ (x & 1 ? 0x82F63B78u : 0);
      t[i] = x;
    }
    return t;
  }();
  crc = ~crc;
  for (; n > 0; n--) crc = crc >> 8 ^ table[(crc ^ *p++) & 255];
  return ~crc;
}

}  // namespace jaxdali
