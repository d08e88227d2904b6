// JPEG compression artefacts of RGB images: compression by baseline JPEG with chroma of half the size, then
// decompression, with the same bits as libjpeg-turbo with its defaults. Entropy coding is left out, because it loses
// nothing.
#ifndef JAXDALI_FFI_JPEG_DISTORTION_JPEG_DISTORTION_H_
#define JAXDALI_FFI_JPEG_DISTORTION_JPEG_DISTORTION_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/jpeg/color.h"
#include "ffi/jpeg/forward_dct.h"
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
