// Extents of resized images, and the intervals of the images that become them.
#ifndef JAXDALI_FFI_HOST_RESIZE_PLAN_H_
#define JAXDALI_FFI_HOST_RESIZE_PLAN_H_

#include <cstdint>

namespace jaxdali {

// What becomes of axes without a size, and of the aspect ratio.
enum class ResizeMode : int32_t { kDefault = 0, kStretch = 1, kNotLarger = 2, kNotSmaller = 3 };
// How an extent becomes a whole number: halves up, halves to even, towards 0, up. The last three are like kEven, but
// where one scale is for all axes, extents are computed in double precision as `round(x * scale)`, as torchvision does,
// and as timm does.
enum class ExtentRounding : int32_t {
  kRound = 0,
  kEven = 1,
  kTruncate = 2,
  kCeil = 3,
  kPython = 4,
  kTorchvision = 5,
  kTimm = 6
};

// A resize of n samples, see `plan` in jaxdali/fn/_image/resize.py. All arrays are [n, axes]; nullptr: not given.
struct ResizeRequest {
  int64_t n, axes;
  const double* extents;
  const double* request;
  const double* first;  // of the region
  const double* last;
  bool relative;
  ResizeMode mode;
  const double* max_size;
  bool subpixel_scale;
  ExtentRounding rounding;
  const double* alignment;  // nullptr: 0.5
};

// Writes the extents [n, axes], and the first and last point of the intervals [n, axes, 2]. Returns whether all numbers
// are finite and no extent is larger than `most`.
bool PlanResize(const ResizeRequest& r, int64_t most, int64_t* sizes, float* intervals);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RESIZE_PLAN_H_
