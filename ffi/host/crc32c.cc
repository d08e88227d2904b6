// Two versions: three interleaved streams of SSE4.2's crc32 instruction, and one look-up per byte. The polynomial is
// 0x1EDC6F41 (Castagnoli); its bits are reversed here, since the lowest bit of a byte comes first. The register begins
// as all ones and is inverted at the end.
#include "ffi/host/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "ffi/common/cpu.h"

namespace jaxdali {

#if defined(__x86_64__)
namespace {

// The instruction has a latency of three cycles and a throughput of one, so three parts of this size are computed side
// by side. Their checksums are then joined: appending a part's length of zeros to a checksum is linear over XOR, so the
// result is the XOR of one table entry for each byte of the checksum.
constexpr int64_t kPart = 1024;

// The register (not inverted) after n more bytes.
__attribute__((target("sse4.2,crc32"))) uint32_t UpdateWords(uint32_t crc, const uint8_t* p, int64_t n) {
  uint64_t x = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    x = _mm_crc32_u64(x, word);
  }
  auto y = static_cast<uint32_t>(x);
  for (; n > 0; n--) y = _mm_crc32_u8(y, *p++);
  return y;
}

// Maps a checksum of any bytes to that of the same bytes with kPart zeros after them.
struct AppendZeros {
  AppendZeros() {
    static constexpr uint8_t kZeros[kPart] = {};
    for (int byte = 0; byte < 4; byte++)
      for (uint32_t value = 0; value < 256; value++) table[byte][value] = UpdateWords(value << 8 * byte, kZeros, kPart);
  }
  uint32_t operator()(uint32_t crc) const {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
  }
  uint32_t table[4][256];
};

// Crc32c by the instruction: three neighbouring parts at a time, then the rest.
__attribute__((target("sse4.2,crc32"))) uint32_t Crc32cBySse(uint32_t crc, const uint8_t* p, int64_t n) {
  static const AppendZeros append_zeros;
  crc = ~crc;
  for (; n >= 3 * kPart; n -= 3 * kPart, p += 3 * kPart) {
    uint64_t x = crc, y = 0, z = 0;
    for (int64_t offset = 0; offset < kPart; offset += 8) {
      uint64_t words[3];
      for (int k = 0; k < 3; k++) std::memcpy(&words[k], p + k * kPart + offset, 8);
      x = _mm_crc32_u64(x, words[0]);
      y = _mm_crc32_u64(y, words[1]);
      z = _mm_crc32_u64(z, words[2]);
    }
    // x precedes two parts, y one.
    crc = append_zeros(append_zeros(static_cast<uint32_t>(x)) ^ static_cast<uint32_t>(y)) ^ static_cast<uint32_t>(z);
  }
  return ~UpdateWords(crc, p, n);
}

}  // namespace
#endif

// The checksum of bytes that follow those with the checksum `crc` (0: none).
uint32_t Crc32c(uint32_t crc, const uint8_t* p, int64_t n) {
#if defined(__x86_64__)
  if (ThisCpu().sse42) return Crc32cBySse(crc, p, n);
#endif
  static const auto table = [] {
    std::array<uint32_t, 256> t;
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t x = i;
      // 0x82F63B78 is the polynomial with its bits reversed.
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
