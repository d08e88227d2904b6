// The kind of upsampling that libjpeg uses for a component, with fancy upsampling on (jdsample.c): kFull copies, kH2V1,
// kH1V2 and kH2V2 interpolate linearly, kRepeat repeats samples. libjpeg also repeats the samples of rows with at most
// two.
#ifndef JAXDALI_FFI_JPEG_UPSAMPLING_H_
#define JAXDALI_FFI_JPEG_UPSAMPLING_H_

#include <cstdint>

namespace jaxdali::jpeg {

enum class Upsampling : int32_t { kFull, kH2V1, kH1V2, kH2V2, kRepeat };

// The kind of upsampling that libjpeg uses for a component with `width` samples per row, each of which covers expand_x
// x expand_y pixels. kH2V1, kH1V2 and kH2V2 interpolate between neighbours, along a row only where it has more than two
// samples. kFull: nothing is to be done.
inline Upsampling UpsamplingOf(int expand_x, int expand_y, int width) {
  if (expand_x == 1 && expand_y == 1) return Upsampling::kFull;
  if (expand_x == 2 && expand_y == 1 && width > 2) return Upsampling::kH2V1;
  if (expand_x == 1 && expand_y == 2) return Upsampling::kH1V2;
  if (expand_x == 2 && expand_y == 2 && width > 2) return Upsampling::kH2V2;
  return Upsampling::kRepeat;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_UPSAMPLING_H_
