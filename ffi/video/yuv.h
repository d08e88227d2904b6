// Pixels of decoded videos: planes of luma and chroma to RGB.
#ifndef JAXDALI_FFI_VIDEO_YUV_H_
#define JAXDALI_FFI_VIDEO_YUV_H_

#include <cstdint>

namespace jaxdali {

struct Plane {
  const uint8_t* data;
  int64_t stride;  // bytes from one row to the next
  const uint8_t* row(int64_t y) const { return data + y * stride; }
};

// A frame of 8-bit samples. Chroma has half of the extents where it is subsampled, which must be even then.
struct YuvFrame {
  Plane y, u, v;
  int64_t height, width;
  bool half_width, half_height;  // of chroma
  bool full_range;               // 0 .. 255 instead of 16 .. 235 (luma) and 16 .. 240 (chroma)
};

// Converts a frame to RGB [height, width, 3] by BT.601. Chroma is interpolated linearly, with its samples between those
// of luma. All products are exact: the result is that of swscale with its options for accuracy, which DALI uses.
void YuvToRgb(const YuvFrame& frame, uint8_t* rgb);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_VIDEO_YUV_H_
