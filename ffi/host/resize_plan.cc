// The order of the operations and their precision decide which way an extent rounds, so each step has the precision of
// DALI (float32, see Single) or of the library that it imitates.
#include "ffi/host/resize_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace jaxdali {

namespace {

constexpr double kMinInterval = 1e-3;  // a narrower region is widened to this many pixels
constexpr double kInf = std::numeric_limits<double>::infinity();

// Rounds to float32, in which DALI holds these numbers.
double Single(double x) { return static_cast<double>(static_cast<float>(x)); }

// The minimum and the maximum; NaN if one of the two is.
double MinOrNan(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double MaxOrNan(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// The whole number that an extent becomes, where SetScaledExtents sets nothing.
double Round(double x, ExtentRounding rounding) {
  switch (rounding) {
    case ExtentRounding::kEven:
    case ExtentRounding::kPython:
    case ExtentRounding::kTorchvision:
    case ExtentRounding::kTimm:
      return std::nearbyint(x);
    case ExtentRounding::kTruncate:
      return std::trunc(x);
    case ExtentRounding::kCeil:
      return std::ceil(x);
    case ExtentRounding::kRound:
      break;
  }
  return std::floor(x + 0.5);
}

struct Axis {
  double extent, request;  // of the image; requested, 0 for an axis without a size
  double low, high;        // the interval that is resized, in pixels
  double limit, scale;     // the largest extent, or infinity; the scale that the request gives
  bool has_size;
  double scaled;  // the extent of the result, as a whole number, where SetScaledExtents sets it

  double source() const { return high - low; }
};

// The scale of all axes (kNotLarger, kNotSmaller), or of those without a size (kDefault, kStretch). Limits only count
// for a scale of all axes; elsewhere they limit each axis.
double CommonScale(const std::vector<Axis>& axes, ResizeMode mode) {
  double common = mode == ResizeMode::kNotLarger ? kInf : -kInf, limit_scale = kInf, sum_of_logs = 0;
  int num_sizes = 0;
  for (const Axis& a : axes) {
    limit_scale = MinOrNan(limit_scale, a.limit / a.source());
    if (!a.has_size) continue;
    num_sizes++;
    sum_of_logs += std::log(a.scale);
    common = mode == ResizeMode::kNotLarger ? MinOrNan(common, a.scale) : MaxOrNan(common, a.scale);
  }
  if (mode == ResizeMode::kStretch) return 1;
  if (mode == ResizeMode::kDefault)
    return Single(std::exp(sum_of_logs / std::max(num_sizes, 1)));  // the geometric mean
  return MinOrNan(common, limit_scale);
}

// Where all axes have one scale (kNotLarger, kNotSmaller), sets `scaled`, their extents as whole numbers, as Python's
// round(x * scale), torchvision or timm compute them. Returns false if it sets nothing.
bool SetScaledExtents(ExtentRounding rounding, ResizeMode mode, std::vector<Axis>* axes) {
  const bool imitates_library = rounding == ExtentRounding::kPython || rounding == ExtentRounding::kTorchvision ||
                                rounding == ExtentRounding::kTimm;
  if (!imitates_library || mode == ResizeMode::kDefault || mode == ResizeMode::kStretch) return false;
  const Axis* scale_axis = nullptr;  // the axis whose request gives the scale of all
  for (const Axis& a : *axes) {
    if (!a.has_size) continue;
    if (scale_axis != nullptr) {
      const double scale = std::abs(a.request) / a.source(),
                   first_scale = std::abs(scale_axis->request) / scale_axis->source();
      // kNotSmaller takes the largest scale, kNotLarger the smallest; of equal ones the first.
      if (mode == ResizeMode::kNotSmaller ? scale <= first_scale : scale >= first_scale) continue;
    }
    scale_axis = &a;
  }
  if (scale_axis == nullptr) return false;
  const double request = std::abs(scale_axis->request), source = scale_axis->source();
  double scale = request / source, ratio = source / request;  // of all axes, within the limits of all
  for (Axis& a : *axes) {
    scale = std::min(scale, a.limit / a.source());
    ratio = std::max(ratio, a.source() / a.limit);
    a.scaled = std::trunc(request * a.source() / source);
  }
  // timm divides by the ratio, where the others multiply by the scale: the two can round differently.
  if (rounding != ExtentRounding::kTorchvision) {
    for (Axis& a : *axes)
      a.scaled = std::nearbyint(rounding == ExtentRounding::kTimm ? a.source() / ratio : a.source() * scale);
    return true;
  }
  // torchvision truncates the extents, and again where the limit scales them.
  const auto longest_axis = std::max_element(
      axes->begin(), axes->end(), [](const Axis& a, const Axis& b) { return a.scaled / a.limit < b.scaled / b.limit; });
  const double longest = longest_axis->scaled, limit = longest_axis->limit;
  for (Axis& a : *axes)
    if (longest > limit) a.scaled = std::trunc(limit * a.scaled / longest);
  return true;
}

}  // namespace

// Writes the extents `sizes` [n, axes] and the `intervals` [n, axes, 2] of the images that are resized. Returns whether
// all numbers are finite, and no extent is above `most`. For each sample: the region and the scale of each axis, then
// the scale that axes have in common, then the extents and the intervals.
bool PlanResize(const ResizeRequest& r, int64_t most, int64_t* sizes, float* intervals) {
  const bool is_per_axis = r.mode == ResizeMode::kDefault || r.mode == ResizeMode::kStretch;
  std::vector<Axis> axes(static_cast<size_t>(r.axes));
  bool is_valid = true;
  for (int64_t i = 0; i < r.n; i++) {
    bool has_any_size = false;
    for (int64_t d = 0; d < r.axes; d++) {
      const int64_t k = i * r.axes + d;
      Axis& a = axes[static_cast<size_t>(d)];
      is_valid = is_valid && std::isfinite(r.request[k]);
      a.extent = r.extents[k];
      // An empty axis stays so, and does not influence the others, as in DALI.
      a.request = a.extent == 0 ? 0 : Single(r.request[k]);
      a.low = 0;
      a.high = Single(a.extent);
      if (r.first != nullptr) {
        const double unit = r.relative ? a.extent : 1;
        a.low = Single(Single(r.first[k]) * unit);
        a.high = Single(Single(r.last[k]) * unit);
      }
      // A reversed region mirrors the image.
      if (a.high < a.low) {
        a.request = -a.request;
        std::swap(a.low, a.high);
      }
      // A region without width is widened about its middle.
      if (a.high - a.low < kMinInterval) {
        const double middle = (a.low + a.high) / 2;
        a.low = middle - kMinInterval / 2;
        a.high = middle + kMinInterval / 2;
      }
      a.limit = r.max_size != nullptr && r.max_size[k] > 0 ? r.max_size[k] : kInf;
      a.has_size = a.request != 0;
      a.scale = Single(std::abs(a.request / a.source()));
      has_any_size = has_any_size || a.has_size;
    }
    // All axes are known now, so their common scale can be computed.
    const double common = CommonScale(axes, r.mode);
    const bool scaled = SetScaledExtents(r.rounding, r.mode, &axes);
    for (int64_t d = 0; d < r.axes; d++) {
      const int64_t k = i * r.axes + d;
      const Axis& a = axes[static_cast<size_t>(d)];
      const double source = a.source();
      double target =
          is_per_axis ? MinOrNan(a.has_size ? std::abs(a.request) : source * common, a.limit) : source * common;
      target = Single(has_any_size ? target : source);
      const double size = a.extent == 0 ? 0 : MaxOrNan(scaled ? a.scaled : Round(target, r.rounding), 1);
      // An unset axis keeps the sign of its zero: a reversed region mirrors it, but only where all axes are scaled
      // alike (as in DALI).
      const bool mirrored = is_per_axis ? a.request < 0 : std::signbit(a.request);
      double first = mirrored ? a.high : a.low, last = mirrored ? a.low : a.high;
      // The interval grows as the extent does by its rounding, about the point `alignment` of it, so that the scale
      // stays the requested one.
      if (r.subpixel_scale && size != target) {
        // The factor is above 10 only where an extent below about 0.1 became 1, and is limited there.
        const double factor = std::min(target > 0 ? MaxOrNan(size, 1) / target : kInf, 10.0);
        const double alignment = r.alignment != nullptr ? r.alignment[k] : 0.5;
        const double fixed = first * (1 - alignment) + last * alignment;
        first = fixed + (first - fixed) * factor;
        last = fixed + (last - fixed) * factor;
      }
      intervals[2 * k] = static_cast<float>(first);
      intervals[2 * k + 1] = static_cast<float>(last);
      sizes[k] = std::isfinite(size) ? static_cast<int64_t>(std::min(size, 0x1p62)) : 1;
      is_valid = is_valid && std::isfinite(intervals[2 * k]) && std::isfinite(intervals[2 * k + 1]) && sizes[k] <= most;
    }
  }
  return is_valid;
}

}  // namespace jaxdali
