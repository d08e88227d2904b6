// Pixels of decoded videos: planes of luma and chroma (Y, U, V) to RGB.
#ifndef JAXDALI_FFI_VIDEO_YUV_H_
#define JAXDALI_FFI_VIDEO_YUV_H_

#include <cstdint>

namespace jaxdali {

// The factors of luma above `black` and of the differences of chroma, in units of 2^-13. They combine a matrix (BT.601,
// BT.709, ...) and a range (limited or full).
struct YuvFactors {
  int16_t luma, black, red_v, blue_u, green_u, green_v;
};

template <typename Sample>
struct Plane {
  const Sample* data;
  int64_t stride;  // samples from one row to the next
  const Sample* row(int64_t y) const { return data + y * stride; }
};

// A frame of samples with 8 bits (uint8_t) or 10 bits (uint16_t). Chroma has half of the extents, rounded up, where it
// is subsampled.
template <typename Sample>
struct YuvFrame {
  Plane<Sample> y, u, v;
  int64_t height, width;
  bool half_width, half_height;  // of chroma
  YuvFactors factors;
};

// Converts a frame to RGB [height, width, 3]. Chroma is interpolated linearly, with its samples between those of luma:
// 3/4 of the nearer one and 1/4 of the farther one along an axis. All products are exact: with 8 bits and the factors
// of BT.601, the result is that of swscale with its options for accuracy, which DALI uses.
template <typename Sample>
void YuvToRgb(const YuvFrame<Sample>& frame, uint8_t* rgb);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_VIDEO_YUV_H_
