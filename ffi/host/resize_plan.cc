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

// DALI holds these numbers in float32; which way a size rounds depends on it.
double Single(double x) { return static_cast<double>(static_cast<float>(x)); }

// NaN if one is.
double Least(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double Largest(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double Rounded(double x, ExtentRounding how) {
  switch (how) {
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
  double extent, request, low, high, limit, scale;
  bool given;
  double scaled;  // see ScaledExtents

  double source() const { return high - low; }
};

// The number by which axes without a size are scaled, or all axes.
double CommonScale(const std::vector<Axis>& axes, ResizeMode mode) {
  double common = mode == ResizeMode::kNotLarger ? kInf : -kInf, least = kInf, logs = 0;
  int given = 0;
  for (const Axis& a : axes) {
    least = Least(least, a.limit / a.source());
    if (!a.given) continue;
    given++;
    logs += std::log(a.scale);
    common = mode == ResizeMode::kNotLarger ? Least(common, a.scale) : Largest(common, a.scale);
  }
  if (mode == ResizeMode::kStretch) return 1;
  if (mode == ResizeMode::kDefault) return Single(std::exp(logs / std::max(given, 1)));  // the geometric mean
  return Least(common, least);
}

// Sets `scaled` of axes that get one scale, to whole numbers. Which way an extent rounds depends on the order of the
// operations. Returns false if these are not the numbers of another library.
bool ScaledExtents(ExtentRounding rounding, ResizeMode mode, std::vector<Axis>* axes) {
  const bool by_library = rounding == ExtentRounding::kPython || rounding == ExtentRounding::kTorchvision ||
                          rounding == ExtentRounding::kTimm;
  if (!by_library || mode == ResizeMode::kDefault || mode == ResizeMode::kStretch) return false;
  const Axis* first = nullptr;  // whose request is the scale of all
  for (const Axis& a : *axes) {
    if (!a.given) continue;
    if (first != nullptr) {
      const double scale = std::abs(a.request) / a.source(), other = std::abs(first->request) / first->source();
      if (mode == ResizeMode::kNotSmaller ? scale <= other : scale >= other) continue;
    }
    first = &a;
  }
  if (first == nullptr) return false;
  const double request = std::abs(first->request), source = first->source();
  double scale = request / source, ratio = source / request;
  for (Axis& a : *axes) {
    scale = std::min(scale, a.limit / a.source());
    ratio = std::max(ratio, a.source() / a.limit);
    a.scaled = std::trunc(request * a.source() / source);
  }
  if (rounding != ExtentRounding::kTorchvision) {
    for (Axis& a : *axes)
      a.scaled = std::nearbyint(rounding == ExtentRounding::kTimm ? a.source() / ratio : a.source() * scale);
    return true;
  }
  // It truncates the extents, and again where the limit scales them.
  const auto most = std::max_element(
      axes->begin(), axes->end(), [](const Axis& a, const Axis& b) { return a.scaled / a.limit < b.scaled / b.limit; });
  const double longest = most->scaled, limit = most->limit;
  for (Axis& a : *axes)
    if (longest > limit) a.scaled = std::trunc(limit * a.scaled / longest);
  return true;
}

}  // namespace

bool PlanResize(const ResizeRequest& r, int64_t most, int64_t* sizes, float* intervals) {
  const bool each = r.mode == ResizeMode::kDefault || r.mode == ResizeMode::kStretch;
  std::vector<Axis> axes(static_cast<size_t>(r.axes));
  bool good = true;
  for (int64_t i = 0; i < r.n; i++) {
    bool any = false;
    for (int64_t d = 0; d < r.axes; d++) {
      const int64_t k = i * r.axes + d;
      Axis& a = axes[static_cast<size_t>(d)];
      good = good && std::isfinite(r.request[k]);
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
      if (a.high < a.low) {
        a.request = -a.request;
        std::swap(a.low, a.high);
      }
      if (a.high - a.low < kMinInterval) {
        const double middle = (a.low + a.high) / 2;
        a.low = middle - kMinInterval / 2;
        a.high = middle + kMinInterval / 2;
      }
      a.limit = r.max_size != nullptr && r.max_size[k] > 0 ? r.max_size[k] : kInf;
      a.given = a.request != 0;
      a.scale = Single(std::abs(a.request / a.source()));
      any = any || a.given;
    }
    const double common = CommonScale(axes, r.mode);
    const bool scaled = ScaledExtents(r.rounding, r.mode, &axes);
    for (int64_t d = 0; d < r.axes; d++) {
      const int64_t k = i * r.axes + d;
      const Axis& a = axes[static_cast<size_t>(d)];
      const double source = a.source();
      double target = each ? Least(a.given ? std::abs(a.request) : source * common, a.limit) : source * common;
      target = Single(any ? target : source);
      const double size = a.extent == 0 ? 0 : Largest(scaled ? a.scaled : Rounded(target, r.rounding), 1);
      // An unset axis keeps the sign of its zero: a reversed region mirrors it, but only where all axes are scaled
      // alike (as in DALI).
      const bool mirrored = each ? a.request < 0 : std::signbit(a.request);
      double first = mirrored ? a.high : a.low, last = mirrored ? a.low : a.high;
      if (r.subpixel_scale && size != target) {
        const double factor = std::min(target > 0 ? Largest(size, 1) / target : kInf, 10.0);
        const double alignment = r.alignment != nullptr ? r.alignment[k] : 0.5;
        const double fixed = first * (1 - alignment) + last * alignment;
        first = fixed + (first - fixed) * factor;
        last = fixed + (last - fixed) * factor;
      }
      intervals[2 * k] = static_cast<float>(first);
      intervals[2 * k + 1] = static_cast<float>(last);
      sizes[k] = std::isfinite(size) ? static_cast<int64_t>(std::min(size, 0x1p62)) : 1;
      good = good && std::isfinite(intervals[2 * k]) && std::isfinite(intervals[2 * k + 1]) && sizes[k] <= most;
    }
  }
  return good;
}

}  // namespace jaxdali
