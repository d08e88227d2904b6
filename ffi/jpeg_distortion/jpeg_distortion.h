// JPEG compression artefacts of RGB images: compression by baseline JPEG with chroma of half the size, then
// decompression, with the same bits as libjpeg-turbo with its defaults. Entropy coding is left out, because it loses
// nothing.
#ifndef JAXDALI_FFI_JPEG_DISTORTION_JPEG_DISTORTION_H_
#define JAXDALI_FFI_JPEG_DISTORTION_JPEG_DISTORTION_H_

#include <cstdint>
#include <cstdlib>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/jpeg/color.h"
#include "ffi/jpeg/idct.h"

namespace jaxdali {

inline constexpr int64_t kMcuSide = 16;    // of a minimum coded unit, in pixels
inline constexpr int64_t kMcuBytes = 384;  // samples of a unit: 16 x 16 of luminance, 8 x 8 of Cb, 8 x 8 of Cr
inline constexpr int kMcuLuminance = 256, kMcuChroma = 64;

// One sample: frames of height x width RGB pixels. A unit is a minimum coded unit of JPEG (MCU).
struct JpegDistortionArgs {
  const uint8_t* in;
  uint8_t* out;
  int64_t frames, height, width, down, across;  // down, across: number of units
  const int32_t* tables;                        // [2, 64] quantizers of luminance and of chroma, row by row

  JAXDALI_HD int64_t Units() const { return frames * down * across; }
};

struct JpegDistortionBatch {
  Batch in, out;              // of equal shape
  const int32_t* tables;      // [n, 2, 64] quantizers of luminance and of chroma, row by row: 1 to 255
  const int32_t* first_unit;  // [n] first unit of the sample in the working memory
  float* scratch;             // CUDA only: planes of luminance, Cb and Cr
  int64_t scratch_size;

  // Describes sample i. The caller has checked that it lies inside both buffers. kInternal: its shapes do not fit.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, JpegDistortionArgs* a) const {
    for (int d = 0; d < in.ndim; d++)
      if (in.dim(i, d) != out.dim(i, d)) return kInternal;
    a->frames = in.ndim == 4 ? in.dim(i, 0) : 1;
    a->height = in.dim(i, in.ndim - 3);
    a->width = in.dim(i, in.ndim - 2);
    if (in.dim(i, in.ndim - 1) != 3) return kInternal;
    a->down = (a->height + kMcuSide - 1) / kMcuSide;
    a->across = (a->width + kMcuSide - 1) / kMcuSide;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->tables = tables + int64_t{i} * 128;
    return kOk;
  }

  // Describes sample i, and sets `planes` to its planes in the working memory. kInternal: they do not fit into it.
  JAXDALI_HD Status Sample(int i, JpegDistortionArgs* a, uint8_t** planes) const {
    const Status s = Sample(i, a);
    const int64_t first = first_unit[i], bytes = scratch_size * static_cast<int64_t>(sizeof(float));
    *planes = reinterpret_cast<uint8_t*>(scratch) + first * kMcuBytes;
    return s != kOk || (first >= 0 && (first + a->Units()) * kMcuBytes <= bytes) ? s : kInternal;
  }
};

namespace jpeg {

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

// Luminance (0), Cb (1) or Cr (2) of a pixel, in 8 bits, by JFIF's version of BT.601 with full range. Coefficients are
// in units of 2^-16: 19595 is 0.299, 38470 is 0.587, 7471 is 0.114, and 32768 is 0.5. Luminance is rounded; chroma has
// 128 added and a half less 2^-16, as in libjpeg (jccolor.c), so that 255.5 does not become 256.
JAXDALI_HD inline int32_t Component(int component, const uint8_t* rgb) {
  const int32_t r = rgb[0], g = rgb[1], b = rgb[2];
  if (component == 0) return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
  if (component == 1) return (-11059 * r - 21709 * g + 32768 * b + (128 << 16) + 32767) >> 16;
  return (32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16;
}

}  // namespace jpeg

// The CPU kernel.
Status JpegDistortion(const JpegDistortionBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchJpegDistortion(const JpegDistortionBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_JPEG_DISTORTION_JPEG_DISTORTION_H_
