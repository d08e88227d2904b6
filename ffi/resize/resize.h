// Resampling of images and volumes: parameters, and the arithmetic that all implementations share.
//
// Along each axis, output sample o is a weighted sum of `support` source samples around lo + (o + 0.5) * scale.
// Positions and weights are computed in float32 in DALI's order of operations, because the taps of a filter at an exact
// pixel border depend on the rounding.
#ifndef JAXDALI_FFI_RESIZE_RESIZE_H_
#define JAXDALI_FFI_RESIZE_RESIZE_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/half.h"
#include "ffi/common/hd.h"
#include "ffi/common/interp.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// A filter as a table. The weight at x, counted in entries, is interpolated linearly between two entries; outside it is
// 0.
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

// The tables of all filters except the linear one, which is computed: 32 entries for each source pixel of the filter's
// width (cubic and Lanczos, 4 and 6 pixels wide), and one for its end; the Gaussian has 64 entries for its width, and
// one for its end. resize_filters.cc fills them.
struct FilterTables {
  float cubic[129], lanczos[193], gaussian[65];

  static const FilterTables& Get();
  JAXDALI_HD FilterTable operator[](Interp f) const {
    return f == Interp::kCubic      ? FilterTable{cubic, 129}
           : f == Interp::kLanczos3 ? FilterTable{lanczos, 193}
                                    : FilterTable{gaussian, 65};
  }
};

// `x` clamped and truncated to an integer in [low, high]. It may exceed the range of int.
JAXDALI_HD inline int Bounded(float x, int low, int high) {
  return x <= static_cast<float>(low) ? low : x >= static_cast<float>(high) ? high : static_cast<int>(x);
}

// Table sizes and radii of the filters. A radius is half the width in source pixels, before widening. (The linear
// filter counts as a table of 3 entries: 0, 1, 0.)
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
  float lo, scale;  // start of the source interval; source samples per output sample, negative when mirrored
  float start;      // first tap of output 0, before rounding up
  float step;       // table entries per source sample: smaller for a wider filter
  double support;   // number of taps; may be too large to allocate, see Taps::Make
  int base;         // source sample from which tap positions are counted

  // Maps n_out samples to the source interval lo ... hi, in source samples; hi < lo: mirrored. `min_filter` is used if
  // the axis shrinks, otherwise `mag_filter`.
  JAXDALI_HD static Axis Make(int64_t n_in, int64_t n_out, float lo, float hi, Interp min_filter, Interp mag_filter,
                              bool antialias) {
    Axis a;  // without a constructor, since it is in shared memory
    a.base = 0;
    a.n_in = n_in;
    a.n_out = n_out;
    a.lo = lo;
    a.scale = (hi - lo) / static_cast<float>(n_out);
    // When an image shrinks, `antialias` widens the filter so that it covers all source samples of an output.
    bool shrinks = static_cast<float>(n_out) < fabsf(hi - lo);
    a.filter = shrinks ? min_filter : mag_filter;
    if (a.filter == Interp::kTriangular) a.filter = Interp::kLinear;
    float widen = antialias && shrinks ? fabsf(a.scale) : 1.0f;
    float width = 2 * FilterRadius(a.filter) * widen;
    if (a.filter == Interp::kGaussian) {
      // DALI computes sigma first, which makes the width slightly less than an even number. So at the first few
      // integral positions of an image it uses the pixel after the centre instead of the one before. sigma is widen /
      // (2 sqrt(2)); the width is 4 sqrt(2) sigma = 2 widen.
      float sigma = static_cast<float>(static_cast<double>(widen * 0.5f) / 1.4142135623730951);
      width = static_cast<float>(4 * 1.4142135623730951) * sigma;
    }
    float entries = static_cast<float>(FilterSize(a.filter) - 1);
    a.step = entries / width;
    a.start = lo + a.first_tap_offset();
    a.support = a.filter == Interp::kNN ? 1 : ceilf(entries / a.step);
    return a;
  }

  // Half the width of the filter in source samples.
  JAXDALI_HD float anchor() const { return 0.5f * static_cast<float>(FilterSize(filter) - 1) / step; }
  // Distance from the start of the interval to the first tap of output 0.
  JAXDALI_HD float first_tap_offset() const { return 0.5f * scale - 0.5f - anchor(); }

  // The number of source samples that are used, for SecondPass: from half a filter below the interval on, over the
  // interval's width and a whole filter, as far as they are inside the source.
  JAXDALI_HD double extent_in_use() const {
    const float width = scale * static_cast<float>(n_out);
    if (filter == Interp::kNN) return ceil(fabs(width));
    const float first = (width < 0 ? lo + width : lo) - anchor();
    const float last = first + fabsf(width) + static_cast<float>(support);
    return Bounded(ceilf(last), 0, static_cast<int>(n_in)) - Bounded(floorf(first), 0, static_cast<int>(n_in));
  }

  // Counts positions from the first source sample in use. This determines their rounding, and therefore whether a tap
  // at the very end of a filter, where a Gaussian is not 0, is the first one or the next.
  JAXDALI_HD void CountFromFirst() {
    const float hi = lo + scale * static_cast<float>(n_out);
    base = Bounded(floorf((hi < lo ? hi : lo) - anchor()), 0, static_cast<int>(n_in) - 1);
    start = (lo - static_cast<float>(base)) + first_tap_offset();
  }

  // Whether the number of taps fits into int, and the weights can be stored.
  JAXDALI_HD bool representable() const {
    constexpr double kMaxSupport = 1 << 20, kMaxWeights = 1 << 27;
    constexpr float kMax = std::numeric_limits<float>::max();
    if (!(support <= kMaxSupport) || n_in > INT32_MAX / 2 || n_in < 1 || !(fabsf(scale) <= kMax) ||
        !(fabsf(start) <= kMax))
      return false;
    double k = support < static_cast<double>(n_in) ? support : static_cast<double>(n_in);
    return k * static_cast<double>(n_out) <= kMaxWeights;
  }
};

// The taps of one output sample for any filter but kNN: source samples first + j, j < support. Some may be outside the
// source.
struct TapWindow {
  int first;
  float t;  // table entry of tap 0

  // The taps of output o: from the first source sample at or behind x, the filter's left end.
  JAXDALI_HD static TapWindow Of(const Axis& a, int64_t o) {
    float x = static_cast<float>(o) * a.scale + a.start, up = ceilf(x);
    return {Bounded(up, -(1 << 30), 1 << 30) + a.base, (up - x) * a.step};
  }
  // The weight of tap j of the linear filter: 1 at entry 1, falling to 0 at entries 0 and 2.
  JAXDALI_HD float Linear(const Axis& a, int j) const {
    float w = 1 - fabsf(t + static_cast<float>(j) * a.step - 1);
    return w > 0 ? w : 0;
  }
  JAXDALI_HD float Weight(const Axis& a, const FilterTable& table, int j) const {
    return table(t + static_cast<float>(j) * a.step);
  }
};

// The source samples of nearest neighbours. At exact borders of pixels the rounding of positions decides. DALI
// accumulates the scale along all axes but the innermost (`accumulate`: position 0 is At(0), and each next one adds
// `scale`), and counts from the first source row or column in use (`relative`) along the axis of its second pass.
struct Nearest {
  float begin, scale;  // start of the source interval, counted from `base`; source samples per output sample
  int base, last;      // source sample from which positions are counted; the last source sample
  bool accumulate;

  // The positions along an axis, see above.
  JAXDALI_HD static Nearest Make(const Axis& a, bool accumulate, bool relative) {
    Nearest n;
    n.last = static_cast<int>(a.n_in) - 1;
    const float end = a.lo + a.scale * static_cast<float>(a.n_out);
    n.base = relative ? Bounded(floorf(end < a.lo ? end : a.lo), 0, n.last) : 0;
    n.begin = a.lo - static_cast<float>(n.base);
    n.scale = a.scale;
    n.accumulate = accumulate;
    return n;
  }
  // The position of output o, computed by a multiplication.
  JAXDALI_HD float At(int64_t o) const { return begin + (static_cast<float>(o) + 0.5f) * scale; }
  // The position of sample o that `accumulate` defines, with fewer additions: as long as all sums have the same
  // exponent, the rounded step is the same (with a tie, from the second step on, because the sum is even then).
  JAXDALI_NOINLINE JAXDALI_HD float Accumulated(int64_t o) const {
    float a = At(0);
    for (int64_t i = 0; i < o;) {
      // Three sums as DALI makes them. If their exponents are equal, the step from c to d is the step of all that
      // follow.
      const float b = a + scale, c = b + scale, d = c + scale;
      if (b == a) return a;  // infinite, or so far that the scale has no effect
      // Bits of a float: 0xFF800000 is the sign and the exponent, 0x007FFFFF the mantissa. One step at a time: where
      // few are left, the exponent changes, or it is 0 (subnormal numbers).
      const uint32_t exponent = AsBits(b) & 0xFF800000;
      if (o - i < 8 || (AsBits(c) & 0xFF800000) != exponent || (AsBits(d) & 0xFF800000) != exponent ||
          exponent << 1 == 0) {
        a = b;
        i++;
        continue;
      }
      a = d;
      i += 3;
      const float step = d - c;
      if (step == 0) return a;
      // In units of the last place: how many more steps keep the exponent.
      const int32_t mantissa = static_cast<int32_t>(AsBits(d) & 0x007FFFFF);
      const float magnitude = AsFloat(AsBits(d) & 0x7FFFFFFF), previous_magnitude = AsFloat(AsBits(c) & 0x7FFFFFFF);
      const int32_t units = mantissa - static_cast<int32_t>(AsBits(c) & 0x007FFFFF);
      int64_t steps = magnitude > previous_magnitude ? (0x007FFFFF - mantissa) / units : mantissa / -units;
      if (steps > o - i) steps = o - i;
      a = AsFloat((AsBits(d) & 0xFF800000) | static_cast<uint32_t>(mantissa + steps * units));
      i += steps;
    }
    return a;
  }
  // The source sample at a position, or the nearest one inside.
  JAXDALI_HD int Index(float position) const { return Bounded(floorf(position), -base, last - base) + base; }
};

// The axis, 1 (y) or 2 (x), of DALI's second pass. DALI chooses the cheaper order, and weighs passes along x more. Its
// factor was measured: between 1.09 and 1.15; 1.115 lies between.
JAXDALI_HD inline int SecondPass(const Axis& y, const Axis& x) {
  // The cost of a pass: its taps times the samples that it makes.
  double ny = static_cast<double>(y.n_out), nx = static_cast<double>(x.n_out);
  double height = y.extent_in_use(), width = x.extent_in_use();
  double x_taps = 1.115 * x.support, y_taps = y.support;
  double x_first = x_taps * height * nx + y_taps * ny * nx, y_first = y_taps * ny * width + x_taps * ny * nx;
  return x_first < y_first ? 1 : 2;
}

// Samples begin ... end - 1 of an axis.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The taps of one axis: output o is the sum of weight[o * k + j] * source[first[o] + j], j < k. The weights of taps
// outside the source are added to those of the edge, so that all indices are inside. o counts from the first output
// that is made.
struct Taps {
  int64_t n = 0;
  int k = 0;
  std::vector<int32_t> first;  // [n]
  std::vector<float> weight;   // [n * k]
  int32_t lo = 0, hi = 0;      // the source samples in use are [lo, hi)
  bool negative = false;       // the filter has negative lobes

  // Makes the taps of some outputs of an axis. Returns false if the filter is too wide to be represented. Two arguments
  // say how positions of nearest neighbours are rounded, see Nearest: `accumulate`: each adds the scale to the one
  // before; `relative`: they count from the first source sample in use.
  bool Make(const Axis& axis, bool accumulate, bool relative, Range outputs);
  // Counts source samples from this one.
  void CountFrom(int64_t source);
};

// The library whose numbers the result has, to the bit or nearly so. It determines where taps lie, how those outside
// the image are treated, and where values are rounded. ffi/resample makes all but kDali.
enum class Convention : int32_t { kDali, kPillow, kTensorFlow, kTorchvision };

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
  Convention convention;
};

// The axes of a job in the order z, y, x. With fewer than three axes, the job's are the last ones; a missing axis has
// one sample, which is used.
struct Axes {
  Axis axis[3];
  bool nearest;  // all axes use nearest neighbours
  int second;    // the axis of DALI's second pass (1: y, 2: x) if two axes use nearest neighbours; otherwise -1

  // Describes the axes of a job. Returns kEmpty if an axis of the source has no samples, kTooLarge if a filter is too
  // wide to be represented, or kOk.
  JAXDALI_NOINLINE JAXDALI_HD Status Make(const ResizeJob& job) {
    const int skip = 3 - job.num_axes;  // axes that are missing: axis[d] is axis d - skip of the job
    nearest = true;
    for (int d = 0; d < 3; d++) {
      const int a = d - skip;
      if (a < 0) {
        axis[d] = Axis::Make(/*n_in=*/1, /*n_out=*/1, /*lo=*/0, /*hi=*/1, Interp::kNN, Interp::kNN,
                             /*antialias=*/false);
        continue;
      }
      if (job.in_extent[a] == 0) return kEmpty;
      axis[d] = Axis::Make(job.in_extent[a], job.out_extent[a], job.lo[a], job.hi[a], job.min_filter, job.mag_filter,
                           job.antialias);
      if (!axis[d].representable()) return kTooLarge;
      nearest = nearest && axis[d].filter == Interp::kNN;
    }
    // DALI resizes images in two passes. If both axes are filtered, or both use nearest neighbours, the axis of the
    // second pass counts positions from the first source sample in use, which changes their rounding. All other axes
    // count from the start of the source.
    second = nearest && job.num_axes == 2 ? SecondPass(axis[1], axis[2]) : -1;
    const bool both_filtered = axis[1].filter != Interp::kNN && axis[2].filter != Interp::kNN;
    if (both_filtered && job.num_axes == 2) axis[SecondPass(axis[1], axis[2])].CountFromFirst();
    return kOk;
  }
};

// A part of a job, along each axis: the outputs to make, and the source samples that are in memory. The job's `out` and
// `in` contain only these. All numbers count from the beginning of the whole axis.
struct ResizePart {
  Range output[3], source[3];
  // All outputs and the whole source.
  static ResizePart Whole(const ResizeJob& job);
};

// Sets part->source to the source samples that part->output depends on, exactly those that Axes and Taps compute.
Status SourceOf(const ResizeJob& job, ResizePart* part);

// Resizes a part on the CPU.
Status ResizeSome(const ResizeJob& job, const ResizePart& part);

// ResizeSome with rows that `next` writes one after another, those of part.source[0]; `next` returns false if a row is
// missing. It keeps no more rows than the filter has taps, and takes all rows of the source. False: only ResizeSome
// supports this resize, or a row was missing; then the contents of `out` are undefined. `gray`: the rows have one
// channel, to which the job's three are equal.
bool ResizeRows(const ResizeJob& job, const ResizePart& part, const std::function<bool(uint8_t*)>& next, bool gray);

// Whether there is a kernel for these types: from any type to itself, or to a float of at most 32 bits.
inline bool ResizeTypes(DType in, DType out) {
  return out == in || out == DType::kF32 || out == DType::kF16 || out == DType::kBF16;
}

// The operands of the custom call.
struct ResizeBatch {
  Batch in, out;             // see ResizeTypes
  const float* roi;          // [n, num_axes, 2]: source interval in pixels; first > second: mirrored
  const int32_t* filters;    // [n, 2]: filter (Interp) when shrinking, and when enlarging
  int first_axis, num_axes;  // the first of the resized axes, which are neighbours, and how many
  bool antialias;            // widen the filter when shrinking
  Convention convention;     // kDali in all calls but those of `resample`
  JAXDALI_ATTRIBUTES(first_axis, num_axes, antialias);

  // Describes sample i. The caller has checked that it lies inside both buffers. The axes before the resized ones
  // become `outer`, those after them `inner`; they must be equal in input and output, otherwise the result is
  // kInternal.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, ResizeJob* job) const {
    job->in_type = in.dtype;
    job->out_type = out.dtype;
    job->in = in.bytes(i);
    job->out = out.bytes(i);
    job->outer = job->inner = 1;
    job->num_axes = num_axes;
    for (int d = 0; d < in.ndim; d++) {
      const int a = d - first_axis;
      if (a >= 0 && a < num_axes) {
        job->in_extent[a] = in.dim(i, d);
        job->out_extent[a] = out.dim(i, d);
        continue;
      }
      if (in.dim(i, d) != out.dim(i, d)) return kInternal;
      (a < 0 ? job->outer : job->inner) *= in.dim(i, d);
    }
    for (int a = 0; a < num_axes; a++) {
      const float* interval = roi + (static_cast<int64_t>(i) * num_axes + a) * 2;
      job->lo[a] = interval[0];
      job->hi[a] = interval[1];
    }
    job->min_filter = static_cast<Interp>(filters[2 * i]);
    job->mag_filter = static_cast<Interp>(filters[2 * i + 1]);
    job->antialias = antialias;
    job->convention = convention;
    return kOk;
  }
};

// The CPU kernel.
Status Resize(const ResizeBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchResize(const ResizeBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_H_
