// Gathers by a coordinate map: each output pixel is the input's value at a point that is computed or given.
#ifndef JAXDALI_FFI_REMAP_REMAP_H_
#define JAXDALI_FFI_REMAP_REMAP_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/border.h"
#include "ffi/common/convert.h"
#include "ffi/common/half.h"
#include "ffi/common/hd.h"
#include "ffi/common/interp.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The kinds of source points of an output pixel (x, y). Points are in pixels from the image's corner, so the centre
// of pixel 0 is at 0.5. The numbers of a sample are in brackets.
enum class Points : int32_t {
  kGiven,       // operands [frames of the maps, 1 or the image's; offset that is added to them]
  kProjective,  // [matrix, 3 x 3, of (x, y, 1)]
  kSphere,      // moves faster towards the edge the farther out it is []
  kWater,       // waves [amplitude, frequency, phase of x along y; of y along x]
  kJitter,      // a random pixel in a square around it [key in [0, 1), extent]
  kGrid,        // itself, or none in the squares of a grid [cosine and sine by tile, ratio, start x, y]
};
// A point outside of every image; the largest coordinate, so that integers hold it.
inline constexpr double kNowhere = -1e30, kFarthest = 1e9;

// How many numbers each sample has.
JAXDALI_HD inline int PointNumbers(Points points) {
  switch (points) {
    case Points::kGiven:
    case Points::kJitter:
      return 2;
    case Points::kProjective:
      return 9;
    case Points::kSphere:
      return 0;
    case Points::kWater:
      return 6;
    case Points::kGrid:
      return 5;
  }
  return 0;
}

struct Point {
  double x, y;
};

// One sample.
struct RemapArgs {
  const void* in;  // [frames, H, W, C]
  void* out;       // [frames, H', W', C]
  int64_t frames, channels;
  int64_t in_size[2], out_size[2];  // x, y
  const double* numbers;
  const float* map[2];  // in the order x, y
  const float* fill;
  int fills;  // 1, or one for each channel
  Points points;
  Interp sampling;
  Border border;
};

// Mixes 64 bits well (the finalizer of splitmix64).
JAXDALI_HD inline uint64_t Mixed(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// Water shifts x by a wave along y, and y by one along x: amplitude * sin or cos(frequency * position + phase), in
// float like DALI.
JAXDALI_HD inline float WaterX(const double* n, int64_t y) {
  return static_cast<float>(n[0]) * sinf(static_cast<float>(n[1]) * static_cast<float>(y) + static_cast<float>(n[2]));
}
JAXDALI_HD inline float WaterY(const double* n, int64_t x) {
  return static_cast<float>(n[3]) * cosf(static_cast<float>(n[4]) * static_cast<float>(x) + static_cast<float>(n[5]));
}

JAXDALI_HD inline Point Projected(const double* n, double x, double y) {
  const double w = n[6] * x + n[7] * y + n[8];
  return {(n[0] * x + n[1] * y + n[2]) / w, (n[3] * x + n[4] * y + n[5]) / w};
}

// The source point of output pixel (x, y) of a frame. The sample's numbers `n` are those that Points lists.
template <Points kPoints>
JAXDALI_HD inline Point SourcePoint(const RemapArgs& a, int64_t frame, int64_t x, int64_t y) {
  const double* n = a.numbers;
  const double dx = static_cast<double>(x), dy = static_cast<double>(y);
  if constexpr (kPoints == Points::kGiven) {
    const int64_t i = ((n[0] > 1 ? frame : 0) * a.out_size[1] + y) * a.out_size[0] + x;
    return {static_cast<double>(a.map[0][i]) + n[1], static_cast<double>(a.map[1][i]) + n[1]};
  } else if constexpr (kPoints == Points::kProjective) {
    return Projected(n, dx, dy);
  } else if constexpr (kPoints == Points::kSphere) {  // in float like DALI, for the same nearest pixels
    const float middle_x = static_cast<float>(a.in_size[0]) * 0.5f, middle_y = static_cast<float>(a.in_size[1]) * 0.5f;
    const float radius = static_cast<float>(static_cast<int>(middle_x > middle_y ? middle_x : middle_y));
    const float from_x = static_cast<float>(x) + 0.5f - middle_x, from_y = static_cast<float>(y) + 0.5f - middle_y;
    const float factor = sqrtf(from_x * from_x + from_y * from_y) / radius;
    return {middle_x + factor * from_x, middle_y + factor * from_y};
  } else if constexpr (kPoints == Points::kWater) {
    return {static_cast<float>(x) + WaterX(n, y), static_cast<float>(y) + WaterY(n, x)};
  } else if constexpr (kPoints == Points::kJitter) {
    const uint64_t pixel = static_cast<uint64_t>((frame * a.out_size[1] + y) * a.out_size[0] + x);
    // Weyl sequence and finalizer of splitmix64. 2^53 turns the key into an integer.
    const uint64_t random = Mixed(static_cast<uint64_t>(n[0] * 9007199254740992.0) + (pixel + 1) * 0x9E3779B97F4A7C15u);
    const uint64_t extent = static_cast<uint64_t>(n[1]);
    // Each half of the random bits, as a fraction of 1, chooses one of `extent` pixels along an axis.
    const double half = static_cast<double>(extent / 2) - 0.5;
    return {dx + static_cast<double>((random >> 32) * extent >> 32) - half,
            dy + static_cast<double>((random & 0xFFFFFFFF) * extent >> 32) - half};
  } else {  // kGrid: coordinates in tiles, along and across the rotated grid
    const float c = static_cast<float>(n[0]), s = static_cast<float>(n[1]), ratio = static_cast<float>(n[2]);
    const float along = static_cast<float>(n[3]) + static_cast<float>(y) * -s + static_cast<float>(x) * c;
    const float across = static_cast<float>(n[4]) + static_cast<float>(y) * c + static_cast<float>(x) * s;
    if (along - floorf(along) < ratio && across - floorf(across) < ratio) return {kNowhere, kNowhere};
    return {dx + 0.5, dy + 0.5};
  }
}

// Calls f with the kind of points as a constant of the compiler, std::integral_constant<Points, ...>{}.
template <class F>
JAXDALI_HD inline auto WithPoints(Points points, F f) {
  switch (points) {
    case Points::kGiven:
      return f(std::integral_constant<Points, Points::kGiven>{});
    case Points::kProjective:
      return f(std::integral_constant<Points, Points::kProjective>{});
    case Points::kSphere:
      return f(std::integral_constant<Points, Points::kSphere>{});
    case Points::kWater:
      return f(std::integral_constant<Points, Points::kWater>{});
    case Points::kJitter:
      return f(std::integral_constant<Points, Points::kJitter>{});
    default:
      return f(std::integral_constant<Points, Points::kGrid>{});
  }
}

// Weights of the pixels floor(x) - 1 ... floor(x) + 2 for the fraction f: Keys' cubic with -0.75, as in OpenCV.
JAXDALI_HD inline void CubicWeights(float f, float* w) {
  constexpr float kA = -0.75f;
  const float g = 1 - f;
  w[0] = kA * f * g * g;
  w[1] = ((kA + 2) * f - (kA + 3)) * f * f + 1;
  w[2] = ((kA + 2) * g - (kA + 3)) * g * g + 1;
  w[3] = 1 - w[0] - w[1] - w[2];
}

// Number of neighbours along an axis, and their weights for the fraction f.
JAXDALI_HD constexpr int TapsOf(Interp s) { return s == Interp::kNN ? 1 : s == Interp::kLinear ? 2 : 4; }

// The weights of kTaps neighbours along an axis for the fraction f: one, two (linear) or four (cubic).
template <int kTaps>
JAXDALI_HD inline void TapWeights(float f, float* w) {
  if constexpr (kTaps == 4) {
    CubicWeights(f, w);
  } else {
    w[0] = 1 - f;
    if constexpr (kTaps == 2) w[1] = f;
  }
}

// The sum of value(row, column) of all taps. It begins with the first product, not with 0, which saves additions.
template <int kTaps, class Value>
JAXDALI_HD inline float WeightedSum(const float* wx, const float* wy, Value value) {
  float sum = 0;
  for (int j = 0; j < kTaps; j++) {
    float line = value(j, 0) * wx[0];
    for (int k = 1; k < kTaps; k++) line += value(j, k) * wx[k];
    sum = j == 0 ? line * wy[0] : sum + line * wy[j];
  }
  return sum;
}

// Makes all channels of one output pixel. C is the number of channels; 0: any number.
template <class T, Interp kSampling, int C = 0>
JAXDALI_HD inline void SamplePixel(const RemapArgs& a, const T* in, Point p, T* out) {
  constexpr int kTaps = TapsOf(kSampling);
  const int64_t channels = C ? C : a.channels, width = a.in_size[0], height = a.in_size[1];
  const int fill_step = a.fills > 1;                        // 1: a fill for each channel; 0: one for all
  if (!(fabs(p.x) < kFarthest && fabs(p.y) < kFarthest)) {  // also true for NaN
    if (a.border == Border::kConstant) {
      for (int64_t c = 0; c < channels; c++) out[c] = ConvertTo<T>(a.fill[c * fill_step]);
      return;
    }
    p.x = p.x > kFarthest ? kFarthest : p.x > -kFarthest ? p.x : -kFarthest;
    p.y = p.y > kFarthest ? kFarthest : p.y > -kFarthest ? p.y : -kFarthest;
  }
  if constexpr (kSampling != Interp::kNN) {  // interpolates between the centres of pixels
    p.x -= 0.5;
    p.y -= 0.5;
  }
  const double floor_x = floor(p.x), floor_y = floor(p.y);
  // The first neighbour: with four taps, one lies before the pixel of the point.
  const int64_t first_x = static_cast<int64_t>(floor_x) - (kTaps == 4),
                first_y = static_cast<int64_t>(floor_y) - (kTaps == 4);
  if constexpr (kSampling == Interp::kNN) {
    const int64_t x = Inside(a.border, first_x, width), y = Inside(a.border, first_y, height);
    if (x < 0 || y < 0) {
      for (int64_t c = 0; c < channels; c++) out[c] = ConvertTo<T>(a.fill[c * fill_step]);
    } else {
      const T* from = in + (y * width + x) * channels;
      for (int64_t c = 0; c < channels; c++) out[c] = from[c];
    }
  } else {
    float wx[kTaps], wy[kTaps];
    const float fx = static_cast<float>(p.x - floor_x), fy = static_cast<float>(p.y - floor_y);
    TapWeights<kTaps>(fx, wx);
    TapWeights<kTaps>(fy, wy);
    if (first_x >= 0 && first_y >= 0 && first_x + kTaps <= width && first_y + kTaps <= height) {
      const T* rows[kTaps];
      for (int j = 0; j < kTaps; j++) rows[j] = in + ((first_y + j) * width + first_x) * channels;
      for (int64_t c = 0; c < channels; c++)
        out[c] = ConvertTo<T>(
            WeightedSum<kTaps>(wx, wy, [&](int j, int k) { return static_cast<float>(rows[j][k * channels + c]); }));
      return;
    }
    int64_t xs[kTaps], ys[kTaps], signs = 0;  // elements to a column and to a row, negative if it does not exist
    for (int k = 0; k < kTaps; k++) {
      xs[k] = Inside(a.border, first_x + k, width) * channels;
      ys[k] = Inside(a.border, first_y + k, height) * width * channels;
      signs |= xs[k] | ys[k];
    }
    if (signs >= 0) {
      for (int64_t c = 0; c < channels; c++)
        out[c] = ConvertTo<T>(
            WeightedSum<kTaps>(wx, wy, [&](int j, int k) { return static_cast<float>((in + ys[j] + xs[k])[c]); }));
      return;
    }
    for (int64_t c = 0; c < channels; c++) {
      const float fill = a.fill[c * fill_step];
      out[c] = ConvertTo<T>(WeightedSum<kTaps>(wx, wy, [&](int j, int k) {
        return (xs[k] | ys[j]) >= 0 ? static_cast<float>(in[ys[j] + xs[k] + c]) : fill;
      }));
    }
  }
}

// The operands of the custom call.
struct RemapBatch {
  Batch in, out;
  const float* map[2];            // given points: x, y
  const int32_t* map_offsets[2];  // [n] in units of kAlignment elements; null: the maps are contiguous
  int64_t map_capacity[2];
  const double* numbers;   // [n, PointNumbers(points)]
  const float* fill;       // [n, fills]
  const int32_t* applied;  // [n]; 0: the sample is copied unchanged
  int fills;               // 1, or one for each channel
  int first;               // the axis H; then comes W, then channels or nothing
  Points points;
  Interp sampling;
  Border border;
  JAXDALI_ATTRIBUTES(points, sampling, border, first);

  // Describes sample i. The caller has checked that it lies inside both buffers. kEmpty: there are output pixels, but
  // neither input nor fill.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, RemapArgs* a) const {
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->frames = a->channels = 1;
    for (int d = 0; d < in.ndim; d++) {
      if (d == first || d == first + 1) continue;
      if (in.dim(i, d) != out.dim(i, d)) return kInternal;
      (d < first ? a->frames : a->channels) *= in.dim(i, d);
    }
    for (int s = 0; s < 2; s++) {
      a->in_size[s] = in.dim(i, first + 1 - s);
      a->out_size[s] = out.dim(i, first + 1 - s);
    }
    if (fills != 1 && fills != a->channels) return kInternal;
    a->numbers = numbers + static_cast<int64_t>(i) * PointNumbers(points);
    a->fill = fill + static_cast<int64_t>(i) * fills;
    a->fills = fills;
    a->points = points;
    a->sampling = sampling;
    a->border = border;
    if (points == Points::kGiven) {
      const double frames = a->numbers[0];
      if (frames != 1 && frames != static_cast<double>(a->frames)) return kInternal;
      const int64_t elements = static_cast<int64_t>(frames) * a->out_size[0] * a->out_size[1];
      for (int s = 0; s < 2; s++) {
        const int64_t start = map_offsets[s] ? map_offsets[s][i] * kAlignment : i * elements;
        if (start < 0 || start + elements > map_capacity[s]) return kInternal;
        a->map[s] = map[s] + start;
      }
    }
    if (!applied[i] && in.size(i) != out.size(i)) return kInternal;
    if (in.size(i) == 0 && out.size(i) > 0 && border != Border::kConstant) return kEmpty;
    return kOk;
  }
};

// Whether there is a kernel for the element type.
inline bool RemapType(DType t, Interp sampling) {
  return t == DType::kU8 || t == DType::kU16 || t == DType::kI16 || t == DType::kF16 || t == DType::kBF16 ||
         t == DType::kF32 || (t == DType::kI32 && sampling == Interp::kNN);
}

// Calls f(T{}, std::integral_constant<Interp, ...>{}) with the element type, one of RemapType's, and with the sampling
// as a constant of the compiler.
template <class F>
JAXDALI_HD inline auto WithSampling(DType type, Interp sampling, F f) {
  const auto with_sampling = [&](auto t) {  // for a known element type: the sampling
    switch (sampling) {
      case Interp::kNN:
        return f(t, std::integral_constant<Interp, Interp::kNN>{});
      case Interp::kLinear:
        return f(t, std::integral_constant<Interp, Interp::kLinear>{});
      default:
        return f(t, std::integral_constant<Interp, Interp::kCubic>{});
    }
  };
  switch (type) {
    case DType::kU8:
      return with_sampling(uint8_t{});
    case DType::kU16:
      return with_sampling(uint16_t{});
    case DType::kI16:
      return with_sampling(int16_t{});
    case DType::kF16:
      return with_sampling(Half{});
    case DType::kBF16:
      return with_sampling(BFloat16{});
    case DType::kF32:
      return with_sampling(float{});
    default:
      return f(int32_t{}, std::integral_constant<Interp, Interp::kNN>{});
  }
}

// The CPU kernel.
Status Remap(const RemapBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchRemap(const RemapBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_REMAP_REMAP_H_
