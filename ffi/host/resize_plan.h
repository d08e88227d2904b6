// Extents of resized images, and the intervals of the images that become them. It follows DALI's rules (`resize_x`,
// `resize_y`, `mode`, `max_size`, `roi_start`, `roi_end`) to the last bit of the extents; jaxdali/fn/_image/resize.py
// calls it for a batch.
#ifndef JAXDALI_FFI_HOST_RESIZE_PLAN_H_
#define JAXDALI_FFI_HOST_RESIZE_PLAN_H_

#include <cstdint>

namespace jaxdali {

// How axes without a size and the aspect ratio are handled. kDefault: an axis without a size is
// scaled by the geometric mean of the others' scales. kStretch: it keeps its own size. kNotLarger, kNotSmaller: all
// axes have one scale, with which none is larger, or smaller, than requested.
enum class ResizeMode : int32_t { kDefault = 0, kStretch = 1, kNotLarger = 2, kNotSmaller = 3 };
// How an extent becomes a whole number. kRound: halves up. kEven: halves to even. kTruncate: towards 0. kCeil: up. The
// last three round like kEven. But where all axes have one scale, extents are computed in double precision: kPython as
// `round(x * scale)`, the others as torchvision and timm do.
enum class ExtentRounding : int32_t {
  kRound = 0,
  kEven = 1,
  kTruncate = 2,
  kCeil = 3,
  kPython = 4,
  kTorchvision = 5,
  kTimm = 6
};

// A resize of n samples, see `plan` in jaxdali/fn/_image/resize.py. All arrays are [n, axes]; nullptr: absent. An
// extent of `request` is 0 for an axis without a size, and negative for one that is mirrored.
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
