// Rows of three-byte pixels on machines with vectors: converts sixteen pixels to planes and back, and reverses pixels.
#ifndef JAXDALI_FFI_COMMON_PIXELS_H_
#define JAXDALI_FFI_COMMON_PIXELS_H_

#include <cstdint>

#include "ffi/common/simd.h"

#if defined(JAXDALI_SIMD)

namespace jaxdali {

// Maps each byte of a result to a byte of a vector. Bytes from other vectors become 0.
struct ByteOrder {
  alignas(16) int8_t from[16];
  JAXDALI_SIMD JAXDALI_INLINE __m128i operator()(__m128i bytes) const {
    return _mm_shuffle_epi8(bytes, _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
};
// Three registers have 16 pixels (RGBRGB...). The order that moves the bytes of a plane out of register `part` to their
// pixels: byte 3 * i + plane of the pixels belongs to pixel i.
constexpr ByteOrder SplitOrder(int part, int plane) {
  ByteOrder order{};
  for (int i = 0; i < 16; i++)
    order.from[i] = (3 * i + plane) / 16 == part ? static_cast<int8_t>((3 * i + plane) % 16) : int8_t{-1};
  return order;
}
// The reverse: the order that moves the bytes of a plane to register `part` of the pixels.
constexpr ByteOrder JoinOrder(int part, int plane) {
  ByteOrder order{};
  for (int i = 0; i < 16; i++)
    order.from[i] = (16 * part + i) % 3 == plane ? static_cast<int8_t>((16 * part + i) / 3) : int8_t{-1};
  return order;
}

// Sixteen pixels as planes: sixteen bytes of each channel.
struct Planes {
  __m128i plane[3];
};

template <int kPlane>
JAXDALI_SIMD JAXDALI_INLINE __m128i SplitPlane(__m128i a, __m128i b, __m128i c) {
  static constexpr ByteOrder kOrder[3] = {SplitOrder(0, kPlane), SplitOrder(1, kPlane), SplitOrder(2, kPlane)};
  return _mm_or_si128(_mm_or_si128(kOrder[0](a), kOrder[1](b)), kOrder[2](c));
}
// Reads sixteen pixels, which are 48 bytes.
JAXDALI_SIMD JAXDALI_INLINE Planes SplitPixels(const uint8_t* from) {
  const __m128i* p = reinterpret_cast<const __m128i*>(from);
  const __m128i a = _mm_loadu_si128(p), b = _mm_loadu_si128(p + 1), c = _mm_loadu_si128(p + 2);
  return {{SplitPlane<0>(a, b, c), SplitPlane<1>(a, b, c), SplitPlane<2>(a, b, c)}};
}

template <int kPart>
JAXDALI_SIMD JAXDALI_INLINE __m128i JoinPart(const Planes& p) {
  static constexpr ByteOrder kOrder[3] = {JoinOrder(kPart, 0), JoinOrder(kPart, 1), JoinOrder(kPart, 2)};
  return _mm_or_si128(_mm_or_si128(kOrder[0](p.plane[0]), kOrder[1](p.plane[1])), kOrder[2](p.plane[2]));
}
// Writes sixteen pixels.
JAXDALI_SIMD JAXDALI_INLINE void JoinPixels(const Planes& p, uint8_t* to) {
  __m128i* out = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(out, JoinPart<0>(p));
  _mm_storeu_si128(out + 1, JoinPart<1>(p));
  _mm_storeu_si128(out + 2, JoinPart<2>(p));
}

JAXDALI_SIMD JAXDALI_INLINE __m128i Reversed(__m128i bytes) {
  static constexpr ByteOrder kOrder{{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}};
  return kOrder(bytes);
}

// Copies the pixel at `last` and the n - 1 pixels before it, in reverse order.
JAXDALI_SIMD inline void ReversePixels(const uint8_t* last, int64_t n, uint8_t* out) {
  // The last five pixels of the 16 bytes, in reverse order, and the byte before them.
  static constexpr ByteOrder kOrder{{13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1}};
  int64_t i = 0;
  for (; i + 6 <= n; i += 5) {  // five, and a byte of the sixth, which is overwritten later
    // Hardware prefetchers follow no rows that are each read backwards. In an image this is the row after the next one.
    __builtin_prefetch(last + 3 * (2 * n - i));
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(last - 3 * i - 13));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * i), kOrder(bytes));
  }
  for (; i < n; i++)
    for (int c = 0; c < 3; c++) out[3 * i + c] = last[c - 3 * i];
}

// Converts eight floats to bytes in 32-bit words like ConvertTo: rounds half away from zero, saturates, and turns NaN
// into 0. It adds the float just below 0.5, because with 0.5 the value 0.49999997 would become 1.
JAXDALI_SIMD JAXDALI_INLINE __m256i RoundToBytes(__m256 v) {
  v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255));
  return _mm256_cvttps_epi32(_mm256_add_ps(v, _mm256_set1_ps(0x1.fffffep-2f)));
}
JAXDALI_SIMD JAXDALI_INLINE __m256 EightFloats(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

}  // namespace jaxdali

#endif  // defined(JAXDALI_SIMD)

#endif  // JAXDALI_FFI_COMMON_PIXELS_H_
