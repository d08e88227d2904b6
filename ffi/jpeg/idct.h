// The accurate inverse DCT ("islow") of 8 x 8 blocks, with the same bits as libjpeg-turbo's x86 SIMD code. That code
// wraps and saturates 16-bit values where its C code does not, but no encoder makes coefficients for which it matters.
//
// The algorithm is that of Loeffler, Ligtenberg and Moschytz (ICASSP 1989), in the form of sums of two products,
// which x86 has an instruction for. Constants are those of libjpeg's jidctint.c, multiplied by 2^13 and rounded, and
// sums of them: 4433 is 0.541196100, 10703 is 4433 + 6270 (0.765366865), 10704 is 15137 (1.847759065) - 4433, 9633 is
// 1.175875602. The first pass keeps two fractional bits; the second one removes them and the factor 8 of a
// two-dimensional DCT.
#ifndef JAXDALI_FFI_JPEG_IDCT_H_
#define JAXDALI_FFI_JPEG_IDCT_H_

#include <cstdint>

#include "ffi/common/hd.h"

namespace jaxdali::jpeg {

JAXDALI_HD inline int32_t Wrap16(int32_t v) { return static_cast<int16_t>(v); }
JAXDALI_HD inline int32_t Saturate16(int32_t v) { return v < -32768 ? -32768 : v > 32767 ? 32767 : v; }

JAXDALI_HD inline int32_t Dequantize(int16_t coefficient, uint16_t quantizer) {
  return Wrap16(coefficient * quantizer);
}

// One dimension of the transform. Inputs are 16-bit values. kShift: 11 for columns, which come first (13 bits of the
// constants less 2 fractional bits), and 18 for rows (13 + 2 + 3). Even inputs give the even part, odd ones the odd
// part; their sums and differences are the outputs.
template <int kShift>
JAXDALI_HD inline void IdctPass(const int32_t (&v)[8], int32_t (&out)[8]) {
  const int32_t a = Wrap16(v[0] + v[4]) * 8192, b = Wrap16(v[0] - v[4]) * 8192;
  // The even part: inputs 2 and 6 are rotated by 6 pi / 16 and scaled by sqrt(2).
  const int32_t e2 = v[2] * 4433 - v[6] * 10704, e3 = v[2] * 10703 + v[6] * 4433;
  // The odd part, with libjpeg's names: z3 and z4 are sums that two outputs share.
  const int32_t z3 = Wrap16(v[7] + v[3]), z4 = Wrap16(v[5] + v[1]);
  const int32_t o3 = z4 * 9633 - z3 * 6436, o4 = z3 * 9633 + z4 * 6437;
  const int32_t even[4] = {a + e3, b + e2, b - e2, a - e3};
  const int32_t odd[4] = {v[1] * 4926 - v[7] * 7373 + o4, v[3] * 4177 - v[5] * 20995 + o3,
                          o4 - v[5] * 4176 - v[3] * 20995, o3 - v[7] * 4927 - v[1] * 7373};
  for (int i = 0; i < 4; i++) {  // unsigned, because sums are taken modulo 2^32
    const uint32_t e = static_cast<uint32_t>(even[i]) + (1u << (kShift - 1)), o = static_cast<uint32_t>(odd[i]);
    out[i] = Saturate16(static_cast<int32_t>(e + o) >> kShift);
    out[7 - i] = Saturate16(static_cast<int32_t>(e - o) >> kShift);
  }
}

// Turns a dequantized column into a column for the second pass.
JAXDALI_HD inline void IdctColumn(const int32_t (&v)[8], int32_t (&out)[8]) { IdctPass<11>(v, out); }

// The value of a whole column in a block whose rows 1 to 7 are zero: v0 with two fractional bits. The shift wraps
// without saturation.
JAXDALI_HD inline int32_t IdctFlatColumn(int32_t v0) { return Wrap16(v0 * 4); }

// Turns a row of the first pass into samples: adds 128, the level shift (A.3.1), and clamps to 0 .. 255.
JAXDALI_HD inline void IdctRow(const int32_t (&v)[8], int32_t (&out)[8]) {
  IdctPass<18>(v, out);
  for (int i = 0; i < 8; i++) out[i] = (out[i] < -128 ? -128 : out[i] > 127 ? 127 : out[i]) + 128;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_IDCT_H_
