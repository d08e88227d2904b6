// Resampling of images and volumes: parameters and the math that all implementations share.
//
// Axis by axis, output sample o is a weighted sum of `support` source samples around lo + (o + 0.5) * scale. Positions
// and weights are computed in float32, in DALI's order of operations: which taps a filter has at an exact pixel border
// depends on the rounding.
#ifndef JAXDALI_FFI_RESIZE_H_
#define JAXDALI_FFI_RESIZE_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The values of types.DALIInterpType.
enum class Interp : int32_t { kNN = 0, kLinear = 1, kCubic = 2, kLanczos3 = 3, kTriangular = 4, kGaussian = 5 };

// A filter as a table, interpolated linearly between entries; 0 outside.
struct FilterTable {
  const float* entries;
  int size;
  JAXDALI_HD float operator()(float x) const {
    if (!(x > -1) || x >= static_cast<float>(size)) return 0;
    int i = static_cast<int>(floorf(x));
    float a = i >= 0 ? entries[i] : 0, b = i + 1 < size ? entries[i + 1] : 0;
    return a + (x - static_cast<float>(i)) * (b - a);
  }
};

// Table sizes and half widths (radius, in source pixels when not widened) of the filters.
JAXDALI_HD inline int FilterSize(Interp f) {
  return f == Interp::kCubic ? 129 : f == Interp::kLanczos3 ? 193 : f == Interp::kGaussian ? 65 : 3;
}
JAXDALI_HD inline float FilterRadius(Interp f) {
  return f == Interp::kCubic ? 2.0f : f == Interp::kLanczos3 ? 3.0f : 1.0f;
}

// How the output samples of one axis map to source samples.
struct Axis {
  int64_t n_in, n_out;
  Interp filter;    // kNN, kLinear, kCubic, kLanczos3 or kGaussian
  float lo, scale;  // source interval's start; source samples per output sample, negative when mirrored
  float start;      // first tap of output 0, before rounding up
  float step;       // table entries per source sample
  double support;   // taps; may be too large to allocate, see Taps::Make

  JAXDALI_HD static Axis Make(int64_t n_in, int64_t n_out, float lo, float hi, Interp min_filter, Interp mag_filter,
                              bool antialias) {
    Axis a;
    a.n_in = n_in;
    a.n_out = n_out;
    a.lo = lo;
    a.scale = (hi - lo) / static_cast<float>(n_out);
    bool shrinks = static_cast<float>(n_out) < fabsf(hi - lo);
    a.filter = shrinks ? min_filter : mag_filter;
    if (a.filter == Interp::kTriangular) a.filter = Interp::kLinear;
    float widen = antialias && shrinks ? fabsf(a.scale) : 1.0f;
    float width = 2 * FilterRadius(a.filter) * widen;
    if (a.filter == Interp::kGaussian) {
      // DALI goes by way of sigma, which leaves the width just below an even number: at the first few integral
      // positions of an image the pixel after the centre is used instead of the one before.
      float sigma = static_cast<float>(static_cast<double>(widen * 0.5f) / 1.4142135623730951);
      width = static_cast<float>(4 * 1.4142135623730951) * sigma;
    }
    float entries = static_cast<float>(FilterSize(a.filter) - 1);
    a.step = entries / width;
    a.start = lo + (0.5f * a.scale - 0.5f - 0.5f * entries / a.step);
    a.support = a.filter == Interp::kNN ? 1 : ceilf(entries / a.step);
    return a;
  }
};

// The taps of one axis: output o is the sum of weight[o * k + j] * source[first[o] + j], j < k. Taps outside the source
// were added to the edge's weight, so that all indices are inside.
struct Taps {
  int64_t n = 0;
  int k = 0;
  std::vector<int32_t> first;  // [n]
  std::vector<float> weight;   // [n * k]
  int32_t lo = 0, hi = 0;      // the source samples in use, [lo, hi)
  bool negative = false;       // the filter has negative lobes

  // How the positions of nearest neighbours are rounded, which decides at exact borders of pixels. DALI adds up the
  // scale along all axes but the innermost (`accumulate`), and counts from the first source row or column in use
  // (`relative`) along the axis of its second pass.
  struct Nearest {
    bool accumulate = false, relative = false;
  };

  // False when the filter is too wide to be represented.
  bool Make(const Axis& axis, Nearest nearest);
};

// Resizes one sample, an array [outer, in_extent..., inner].
struct ResizeJob {
  DType in_type, out_type;  // out_type is in_type or kF32
  const void* in;
  void* out;
  int64_t outer, inner;
  int num_axes;  // 1 to 3
  int64_t in_extent[3], out_extent[3];
  float lo[3], hi[3];
  Interp min_filter, mag_filter;
  bool antialias;
};

Status ResizeCpu(const ResizeJob& job);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_H_
