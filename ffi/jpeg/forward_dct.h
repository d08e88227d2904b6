// Forward DCT and quantization of 8 x 8 blocks, for images that are compressed and decompressed at once.
#ifndef JAXDALI_FFI_JPEG_FORWARD_DCT_H_
#define JAXDALI_FFI_JPEG_FORWARD_DCT_H_

#include <cstdint>
#include <cstdlib>

#include "ffi/common/hd.h"
#include "ffi/jpeg/idct.h"

namespace jaxdali::jpeg {

// One dimension of the accurate forward DCT of libjpeg (jfdctint.c, "slow integer"): the algorithm of Loeffler,
// Ligtenberg and Moschytz (1989) with 12 multiplications. The constants are cosines of that algorithm in units of
// 2^-13, with the names FIX_0_541196100 (4433) and so on in jfdctint.c.
//
// kShift: the shift of the results, to the left if it is negative: -2 for rows, which come first and keep two more
// bits, then 2 for columns. The two passes together scale the coefficients by 8, which quantization undoes
// (Requantize).
template <int kShift>
JAXDALI_HD inline void ForwardPass(int32_t (&v)[8]) {
  constexpr int kBits = 13 + kShift,
                kHalf = 1 << (kBits - 1);  // bits after the point of products; a half, for rounding
  // Even part: sums of samples that lie symmetrically. Coefficients 0 and 4 need no multiplication.
  const int32_t s[4] = {v[0] + v[7], v[1] + v[6], v[2] + v[5], v[3] + v[4]};
  const int32_t d[4] = {v[0] - v[7], v[1] - v[6], v[2] - v[5], v[3] - v[4]};
  const int32_t a = s[0] + s[3], b = s[1] + s[2], c = s[1] - s[2], e = s[0] - s[3];
  v[0] = kShift < 0 ? (a + b) * 4 : (a + b + 2) >> 2;
  v[4] = kShift < 0 ? (a - b) * 4 : (a - b + 2) >> 2;
  const int32_t z = (c + e) * 4433 + kHalf;  // 0.541196100 = sqrt(2) * c6, where ck = cos(k * pi / 16)
  v[2] = (z + e * 6270) >> kBits;
  v[6] = (z - c * 15137) >> kBits;
  // Odd part: differences of these samples.
  const int32_t z1 = (d[3] + d[0]) * -7373 + kHalf, z2 = (d[2] + d[1]) * -20995 + kHalf;
  const int32_t z5 = (d[3] + d[1] + d[2] + d[0]) * 9633;
  const int32_t z3 = (d[3] + d[1]) * -16069 + z5, z4 = (d[2] + d[0]) * -3196 + z5;
  v[7] = (d[3] * 2446 + z1 + z3) >> kBits;
  v[5] = (d[2] * 16819 + z2 + z4) >> kBits;
  v[3] = (d[1] * 25172 + z2 + z3) >> kBits;
  v[1] = (d[0] * 12299 + z1 + z4) >> kBits;
}

// 2^32 / (8 * quantizer), rounded up: a multiplication by it divides a coefficient, which is scaled by 8.
JAXDALI_HD inline uint32_t Reciprocal(int32_t quantizer) {
  return 0xFFFFFFFFu / (8u * static_cast<uint32_t>(quantizer)) + 1;
}
// Quantizes a coefficient, which is scaled by 8, and turns it back. Quantizers are 1 to 255 and coefficients have 16
// bits, so the quotient is exact.
JAXDALI_HD inline int32_t Requantize(int32_t v, int32_t quantizer, uint32_t reciprocal) {
  const uint32_t size = static_cast<uint32_t>(std::abs(v) + 4 * quantizer);
  const int32_t level = static_cast<int32_t>(uint64_t{size} * reciprocal >> 32);
  return Wrap16((v < 0 ? -level : level) * quantizer);
}

// A table of quantizers of 1 to 255, row by row, and how to divide by them with 16-bit products:
//   n / quantizer = ((n * 32 * reciprocal) >> 16) * scale >> 16  for n < 2^11.
// With 2^s <= quantizer < 2^(s + 1), the reciprocal is 2^(15 + s) / quantizer, rounded up, and the scale 2^(12 - s).
// The reciprocal is too large by less than 1, which makes the quotient too large by less than 2^11 / 2^(15 + s), and
// that is less than 1 / quantizer: so the quotient is exact.
struct Quantizers {
  alignas(16) int16_t quantizer[64];
  alignas(16) uint16_t reciprocal[64], scale[64];

  explicit Quantizers(const int32_t* table) {
    for (int i = 0; i < 64; i++) {
      int s = 0;
      while (2 << s <= table[i]) s++;
      quantizer[i] = static_cast<int16_t>(table[i]);
      reciprocal[i] = static_cast<uint16_t>(((1 << (15 + s)) + table[i] - 1) / table[i]);
      scale[i] = static_cast<uint16_t>(1 << (12 - s));
    }
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_FORWARD_DCT_H_
