// Values and positions of pixels: conversion between element types, colour spaces, orientation. The CPU's decoders and
// the CUDA kernels share this file and give the same bits, so floating-point expressions have one order (and no
// contraction).
#ifndef JAXDALI_FFI_CPU_CODECS_PIXELS_H_
#define JAXDALI_FFI_CPU_CODECS_PIXELS_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ffi/common/half.h"
#include "ffi/common/hd.h"

namespace jaxdali {

// --- element types ------------------------------------------------------------------------------------------------

// The value of T for full intensity.
template <class T>
JAXDALI_HD constexpr double FullIntensity() {
  return std::is_floating_point_v<T> ? 1.0 : static_cast<double>(std::numeric_limits<T>::max());
}

// Converts a value of the source (uint8 or uint16, full range; or float, of any range) to the full range of D. Floats
// beyond the range of integers become the nearest one, and NaN becomes 0.
template <class D, class S>
JAXDALI_HD inline D Scale(S v) {
  if constexpr (std::is_same_v<D, S>) {
    return v;
  } else if constexpr (std::is_same_v<S, float> && std::is_integral_v<D>) {
    constexpr double lowest = static_cast<double>(std::numeric_limits<D>::lowest());
    const double x = v * FullIntensity<D>();
    if (x >= FullIntensity<D>()) return std::numeric_limits<D>::max();
    if (x <= lowest) return std::numeric_limits<D>::lowest();
    return x < 0 ? static_cast<D>(x - 0.5) : x > 0 ? static_cast<D>(x + 0.5) : D{0};
  } else if constexpr (std::is_same_v<S, uint8_t> && std::is_same_v<D, uint16_t>) {
    return static_cast<uint16_t>(v * 257);
  } else if constexpr (std::is_same_v<S, uint16_t> && std::is_same_v<D, uint8_t>) {
    return static_cast<uint8_t>((v * 255u + 32895u) >> 16);  // = round(v * 255 / 65535), for all v
  } else if constexpr (kIsSmallFloat<D>) {
    return D(static_cast<float>(v) / static_cast<float>(FullIntensity<S>()));
  } else if constexpr (std::is_floating_point_v<D>) {
    return static_cast<D>(v) / static_cast<D>(FullIntensity<S>());
  } else {
    constexpr double factor = FullIntensity<D>() / FullIntensity<S>();
    return static_cast<D>(v * factor + 0.5);
  }
}

// --- colour spaces ------------------------------------------------------------------------------------------------

// 0.299, 0.587, 0.114 as multiples of 2^-16; libjpeg has the same.
template <class S>
JAXDALI_HD inline S GrayOfRgb(S r, S g, S b) {
  if constexpr (std::is_floating_point_v<S>)
    return 0.299f * r + 0.587f * g + 0.114f * b;
  else
    return static_cast<S>((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
}

// The light that an ink lets through, both 0 to 255: light * (255 - ink) / 255, rounded as in Pillow.
JAXDALI_HD inline uint8_t LightThrough(int ink, int light) {
  const int t = ink * light + 128;
  return static_cast<uint8_t>(light - ((t + (t >> 8)) >> 8));
}

// RGB to YCbCr of ITU-R BT.601 in studio range (Y 16 .. 235, chroma 16 .. 240): 65.481 is 0.299 * 219, 112 is 0.5 *
// 224. Values of 16 bits are 257 times as large. Floats are not clamped.
template <class S>
JAXDALI_HD inline void YcbcrOfRgb(S red, S green, S blue, S* out) {
  constexpr float to_8_bits = static_cast<float>(255 / FullIntensity<S>());
  const float r = red * to_8_bits, g = green * to_8_bits, b = blue * to_8_bits;
  const float v[3] = {16 + (65.481f * r + 128.553f * g + 24.966f * b) / 255,
                      128 + (-37.797f * r - 74.203f * g + 112.0f * b) / 255,
                      128 + (112.0f * r - 93.786f * g - 18.214f * b) / 255};
  for (int c = 0; c < 3; c++) {
    if constexpr (std::is_floating_point_v<S>) {
      out[c] = v[c] / 255;
    } else {
      const float clamped = v[c] < 0 ? 0 : v[c] > 255 ? 255 : v[c];
      out[c] = static_cast<S>((sizeof(S) == 1 ? clamped : clamped * 257.0f) + 0.5f);
    }
  }
}

// --- orientation --------------------------------------------------------------------------------------------------

// An EXIF orientation: how the stored raster is changed, first by flips, then by a transposition.
struct Orientation {
  bool flip_y, flip_x, transpose;

  JAXDALI_HD explicit Orientation(int exif)
      : flip_y(exif == 3 || exif == 4 || exif == 6 || exif == 7),
        flip_x(exif == 2 || exif == 3 || exif == 7 || exif == 8),
        transpose(exif >= 5) {}
};

// The places of pixels after an orientation: the stored pixel (y, x) is number start + y * step_y + x * step_x of the
// upright image.
struct Placement {
  int64_t start, step_y, step_x;

  JAXDALI_HD Placement(Orientation o, int64_t height, int64_t width) {
    const int64_t unit_y = o.transpose ? 1 : width, unit_x = o.transpose ? height : 1;
    start = (o.flip_y ? (height - 1) * unit_y : 0) + (o.flip_x ? (width - 1) * unit_x : 0);
    step_y = o.flip_y ? -unit_y : unit_y;
    step_x = o.flip_x ? -unit_x : unit_x;
  }
  JAXDALI_HD bool upright() const { return start == 0 && step_x == 1; }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CPU_CODECS_PIXELS_H_
