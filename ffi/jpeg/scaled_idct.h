// The inverse DCTs for scaled-down images: a block becomes 4 x 4 or 2 x 2 samples or one. They give the same bits as
// libjpeg-turbo for everything that does not overflow in its SIMD code.
//
// Constants are those of libjpeg's jidctred.c, multiplied by 2^13 and rounded: 29692 is 3.624509785, for
// example. The even part has the factor 4 (2 x 2) or 2 (4 x 4), so shifts are those of idct.h, 11 and 18, plus 2 or 1.
// The functions ToFourOfOne and ToSixteenOfOne transform one block of a pair, whose rows are 16 coefficients apart
// (block.h).
#ifndef JAXDALI_FFI_JPEG_SCALED_IDCT_H_
#define JAXDALI_FFI_JPEG_SCALED_IDCT_H_

#include <cstdint>
#include <cstring>

#include "ffi/common/vectors.h"

namespace jaxdali::jpeg {

// Converts a sample, less the level shift of 128, to 0 .. 255. False: it is so large that libjpeg-turbo's table of
// 1,024 entries wraps around.
JAXDALI_INLINE bool ToSample(int32_t v, uint8_t* sample) {
  *sample = static_cast<uint8_t>(v < -128 ? 0 : v > 127 ? 255 : v + 128);
  return v >= -512 && v < 512;
}

// A block's mean, DC / 8, like libjpeg-turbo's jpeg_idct_1x1.
JAXDALI_INLINE bool ToOneOfOne(const int16_t* c, const int16_t* quantizer, uint8_t* sample) {
  return ToSample((c[0] * static_cast<uint16_t>(quantizer[0]) + 4) >> 3, sample);
}

// Like libjpeg-turbo's jpeg_idct_2x2: uses columns and rows 0 and the odd ones. Clears the coefficients. False: they
// are so large that sums could exceed 32 bits, or 16 in its SIMD code.
JAXDALI_INLINE bool ToFourOfOne(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
  // One dimension: two outputs, out[0] and out[to]. 32768 is 2^13, by which all constants are multiplied, times the
  // even part's factor 4.
  auto pass = [](int32_t v0, int32_t v1, int32_t v3, int32_t v5, int32_t v7, int shift, int32_t* out, int to) {
    const int32_t even = v0 * 32768, odd = v1 * 29692 - v3 * 10426 + v5 * 6967 - v7 * 5906, half = 1 << (shift - 1);
    out[0] = (even + odd + half) >> shift;
    out[to] = (even - odd + half) >> shift;
  };
  int32_t rows[2][8] = {}, out[2];
  bool in_range = true;
  auto check = [&](int32_t v, int32_t limit) { return in_range &= v >= -limit && v < limit; };
  for (int x = 0; x < 8; x += x == 0 ? 1 : 2) {
    int32_t v[8];
    for (int y = 0; y < 8; y += y == 0 ? 1 : 2) {
      v[y] = c[16 * y + x] * static_cast<uint16_t>(quantizer[16 * y + x]);
      check(v[y], 8192);
    }
    if (in_range) pass(v[0], v[1], v[3], v[5], v[7], /*shift=*/13, &rows[0][x], /*to=*/8);
  }
  for (int y = 0; y < 8; y++) std::memset(c + 16 * y, 0, 16);
  for (int y = 0; y < 2; y++) {
    const int32_t* const r = rows[y];
    for (int x = 0; x < 8; x++) check(r[x], 16384);
    if (!in_range) return false;
    pass(r[0], r[1], r[3], r[5], r[7], /*shift=*/20, out, /*to=*/1);
    for (int x = 0; x < 2; x++) in_range &= ToSample(out[x], samples + y * pitch + x);
  }
  return in_range;
}

// Like libjpeg-turbo's jpeg_idct_4x4: uses all columns and rows except number 4. Otherwise like ToFourOfOne.
JAXDALI_INLINE bool ToSixteenOfOne(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
  // One dimension: four outputs. 16384 is 2^13, by which all constants are multiplied, times the even part's factor 2.
  auto pass = [](const int32_t (&v)[8], int shift, int32_t (&out)[4]) {
    const int32_t even0 = v[0] * 16384, even2 = v[2] * 15137 - v[6] * 6270, half = 1 << (shift - 1);
    const int32_t odd0 = -v[7] * 1730 + v[5] * 11893 - v[3] * 17799 + v[1] * 8697;
    const int32_t odd2 = -v[7] * 4176 - v[5] * 4926 + v[3] * 7373 + v[1] * 20995;
    out[0] = (even0 + even2 + odd2 + half) >> shift;
    out[3] = (even0 + even2 - odd2 + half) >> shift;
    out[1] = (even0 - even2 + odd0 + half) >> shift;
    out[2] = (even0 - even2 - odd0 + half) >> shift;
  };
  int32_t values[8][8], rows[4][8], out[4], out_of_range = 0;
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 8; x++) {
      values[y][x] = c[16 * y + x] * static_cast<uint16_t>(quantizer[16 * y + x]);
      // Nonzero bits if the value is not within -8192 .. 8191.
      out_of_range |= (values[y][x] + 8192) & ~16383;
    }
    std::memset(c + 16 * y, 0, 16);
  }
  if (out_of_range != 0) return false;
  for (int x = 0; x < 8; x++) {
    int32_t v[8];
    for (int y = 0; y < 8; y++) v[y] = values[y][x];
    pass(v, /*shift=*/12, out);
    for (int y = 0; y < 4; y++) rows[y][x] = out[y];
  }
  for (int y = 0; y < 4; y++)
    for (int x = 0; x < 8; x++) out_of_range |= (rows[y][x] + 16384) & ~32767;  // not within -16384 .. 16383
  if (out_of_range != 0) return false;
  bool in_range = true;
  for (int y = 0; y < 4; y++) {
    pass(rows[y], /*shift=*/19, out);
    for (int x = 0; x < 4; x++) in_range &= ToSample(out[x], samples + y * pitch + x);
  }
  return in_range;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_SCALED_IDCT_H_
