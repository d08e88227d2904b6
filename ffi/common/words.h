// Accesses elements in memory by the 32-bit words that contain them, because a GPU reads and writes words faster than
// bytes.
#ifndef JAXDALI_FFI_COMMON_WORDS_H_
#define JAXDALI_FFI_COMMON_WORDS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ffi/common/half.h"
#include "ffi/common/hd.h"

namespace jaxdali {

// Reads a word; `p` is a multiple of 4.
JAXDALI_HD inline uint32_t ReadWord(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const uint32_t*>(p));
#else
  uint32_t word;
  std::memcpy(&word, __builtin_assume_aligned(p, 4), 4);
  return word;
#endif
}
// Writes a word; `p` is a multiple of 4.
JAXDALI_HD inline void WriteWord(uint8_t* p, uint32_t word) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint32_t*>(p) = word;
#else
  std::memcpy(__builtin_assume_aligned(p, 4), &word, 4);
#endif
}

// Writes four words; `p` is a multiple of 16.
JAXDALI_HD inline void WriteWords(uint8_t* p, const uint32_t* words) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(p) = make_uint4(words[0], words[1], words[2], words[3]);
#else
  std::memcpy(__builtin_assume_aligned(p, 16), words, 16);
#endif
}

// Reads four floats; `p` is a multiple of 16 bytes.
JAXDALI_HD inline void ReadFloats(const float* p, float* v) {
#if defined(__CUDA_ARCH__)
  const float4 four = __ldg(reinterpret_cast<const float4*>(p));
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
#else
  std::memcpy(v, __builtin_assume_aligned(p, 16), 16);
#endif
}
// Writes four floats; `p` is a multiple of 16 bytes.
JAXDALI_HD inline void WriteFloats(float* p, const float* v) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
#else
  std::memcpy(__builtin_assume_aligned(p, 16), v, 16);
#endif
}

// The lower word of high:low >> shift: if `shift` is a multiple of 8, bytes shift / 8 to shift / 8 + 3 of the eight.
// Only the lower five bits of `shift` count.
JAXDALI_HD inline uint32_t Funnel(uint32_t low, uint32_t high, uint32_t shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, shift);
#else
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
#endif
}

// A word of four selected bytes. Each hexadecimal digit of `selectors`, from the lowest on, selects a byte of `a` (0 to
// 3) or of `b` (4 to 7), counted from their lowest bytes.
JAXDALI_HD inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t selectors) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, selectors);
#else
  const uint64_t all = static_cast<uint64_t>(b) << 32 | a;
  uint32_t word = 0;
  for (int i = 0; i < 4; i++) word |= static_cast<uint32_t>(all >> (selectors >> (4 * i) & 7) * 8 & 255) << (8 * i);
  return word;
#endif
}

// The lowest bytes of four words, the first one lowest.
JAXDALI_HD inline uint32_t PackBytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  // 0x40 selects the lowest bytes of both words, 0x5410 the lowest two of each.
  return Permute(Permute(a, b, 0x40), Permute(c, d, 0x40), 0x5410);
}

// Element `i` of a word.
template <class T>
JAXDALI_HD inline float ElementOf(uint32_t word, int i) {
  static_assert(sizeof(T) <= 4);
  if constexpr (std::is_same_v<T, float>) {
    return AsFloat(word);
  } else if constexpr (kIsSmallFloat<T>) {
    T h;
    h.bits = static_cast<uint16_t>(word >> (16 * i));
    return static_cast<float>(h);
  } else {
    return static_cast<float>(static_cast<T>(word >> (8 * static_cast<int>(sizeof(T)) * i)));
  }
}

// The bits of an element, as the lowest ones of a word.
template <class T>
JAXDALI_HD inline uint32_t BitsOf(T v) {
  if constexpr (std::is_same_v<T, float>)
    return AsBits(v);
  else if constexpr (kIsSmallFloat<T>)
    return v.bits;
  else if constexpr (std::is_same_v<T, bool>)
    return v;
  else
    return static_cast<std::make_unsigned_t<T>>(v);
}

// The largest number of words that n neighbouring elements can touch, whatever their alignment.
template <class T>
JAXDALI_HD inline int WordsOf(int n) {
  constexpr int kEach = 4 / sizeof(T);
  return (n + 2 * kEach - 2) / kEach;
}
// Writes word `q` of the words that contain the `n` elements at `to`, whose values are get(0) ... get(n - 1). Where
// other elements share the word, and where there is no word `q`, it writes element by element.
template <class T, class Get>
JAXDALI_HD inline void WriteElements(T* to, int n, int q, Get get) {
  constexpr int kEach = 4 / sizeof(T);
  const int lead = static_cast<int>(reinterpret_cast<uintptr_t>(to) & 3) / static_cast<int>(sizeof(T));
  const int first = q * kEach - lead;
  if (first >= 0 && first + kEach <= n) {
    uint32_t word = 0;
    for (int i = 0; i < kEach; i++) word |= BitsOf<T>(get(first + i)) << (8 * static_cast<int>(sizeof(T)) * i);
    WriteWord(reinterpret_cast<uint8_t*>(to + first), word);
  } else {
    for (int i = first; i < first + kEach; i++)
      if (i >= 0 && i < n) to[i] = get(i);
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_WORDS_H_
