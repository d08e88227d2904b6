// 16-bit floats, IEEE 754 half precision and bfloat16, the same on the CPU and in CUDA kernels. They only store values;
// arithmetic is done in float.
#ifndef JAXDALI_FFI_COMMON_HALF_H_
#define JAXDALI_FFI_COMMON_HALF_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ffi/common/hd.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace jaxdali {

// The float with these bits; AsBits is the reverse.
JAXDALI_HD inline float AsFloat(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
#endif
}

// The bits of a float.
JAXDALI_HD inline uint32_t AsBits(float v) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(v);
#else
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
#endif
}

struct Half {
  uint16_t bits;

  Half() = default;
  // Rounds to nearest even. Values that are too large become infinite.
  JAXDALI_HD explicit Half(float v) : bits(Round(v)) {}

  JAXDALI_HD explicit operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    // A float has 13 more bits of mantissa, and its exponent is biased by 127 instead of 15: 112 more, which is
    // 0x38000000.
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = static_cast<uint32_t>(bits & 0x7FFF) << 13;
    if (rest >= 0x0F800000) return AsFloat(sign | (rest + 0x70000000));  // infinite or NaN
    if (rest >= 0x00800000) return AsFloat(sign | (rest + 0x38000000));
    const float small = AsFloat(rest + 0x38800000) - AsFloat(0x38800000);  // subnormal numbers lack the implicit 2^-14
    return AsFloat(sign | AsBits(small));
#endif
  }

 private:
  // The bits of the half-precision number that is nearest to v; of two, the even one.
  JAXDALI_HD static uint16_t Round(float v) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(v));
#else
    const uint32_t all = AsBits(v), sign = all >> 16 & 0x8000, u = all & 0x7FFFFFFF;
    uint32_t half;
    if (u > 0x7F800000)  // NaN: keeps the upper bits, and sets the bit that makes it quiet
      half = 0x7E00 | (u >> 13 & 0x3FF);
    else if (u >= 0x477FF000)  // from 65520 on
      half = 0x7C00;
    else if (u < 0x38800000)  // subnormal: the sum has the unit 2^-24
      half = AsBits(AsFloat(u) + 0.5f) - 0x3F000000;
    else  // changes the bias, and rounds the 13 bits that are cut off to nearest even
      half = (u - 0x38000000 + 0xFFF + (u >> 13 & 1)) >> 13;
    return static_cast<uint16_t>(sign | half);
#endif
  }
};

static_assert(sizeof(Half) == 2);

// The upper half of a float.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  // Rounds to nearest even. Values that are too large become infinite. All NaNs of one sign become the same one, as in
  // ml_dtypes.
  JAXDALI_HD explicit BFloat16(float v) : bits(Round(AsBits(v))) {}

  JAXDALI_HD explicit operator float() const { return AsFloat(static_cast<uint32_t>(bits) << 16); }

 private:
  // The upper 16 bits of a float's bits u, rounded to the nearest number; of two, to the even one.
  JAXDALI_HD static uint16_t Round(uint32_t u) {
    if ((u & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((u >> 16 & 0x8000) | 0x7FC0);
    return static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
  }
};

static_assert(sizeof(BFloat16) == 2);

// Whether T is Half or BFloat16.
template <class T>
inline constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_HALF_H_
