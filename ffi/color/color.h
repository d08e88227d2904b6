// A linear map of the channels of each pixel, with an offset: brightness, contrast, saturation, hue, colour spaces.
// Python makes the matrices.
#ifndef JAXDALI_FFI_COLOR_COLOR_H_
#define JAXDALI_FFI_COLOR_COLOR_H_

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int kMaxColors = 8;  // channels of a pixel

// The operands of the custom call. Channels are innermost; a sample with one channel may have any shape.
struct ColorBatch {
  Batch in, out;
  const float* matrix;  // [n, out_channels, in_channels + 1]
  int in_channels, out_channels;

  // Number of pixels of sample i. The caller has checked that it lies inside both buffers. -1: the sizes are not
  // multiples of the channels, or differ.
  JAXDALI_HD int64_t Pixels(int i) const {
    const int64_t n = in.size(i) / in_channels;
    return n * in_channels == in.size(i) && n * out_channels == out.size(i) ? n : -1;
  }
  JAXDALI_HD const float* Matrix(int i) const {
    return matrix + static_cast<int64_t>(i) * out_channels * (in_channels + 1);
  }
};

// The CPU kernel.
Status Color(const ColorBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchColor(const ColorBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COLOR_COLOR_H_
