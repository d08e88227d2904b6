// Vectors of CPU kernels on aarch64. Kernels are written once, with AVX2's operations by the names in <immintrin.h>.
// This file implements those that kernels use with NEON, with the same results to the bit. 256 bits are two registers:
// nearly all of AVX2's operations treat both halves alike, so they are the 128-bit operations done twice. Two
// operations differ for inputs that no kernel has: conversions of values beyond int32, and -32768 times itself,
// saturate. Only simd.h includes this file.
#ifndef JAXDALI_FFI_COMMON_NEON_H_
#define JAXDALI_FFI_COMMON_NEON_H_

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace jaxdali {

using __m128i = int64x2_t;
using __m128 = float32x4_t;
using __m128d = float64x2_t;

template <class V>
struct TwoRegisters {
  V low, high;
};
using __m256i = TwoRegisters<__m128i>;
using __m256 = TwoRegisters<__m128>;
using __m256d = TwoRegisters<__m128d>;

// A register of integers as elements of a type, and back.
namespace neon {

JAXDALI_INLINE int8x16_t S8(__m128i v) { return vreinterpretq_s8_s64(v); }
JAXDALI_INLINE uint8x16_t U8(__m128i v) { return vreinterpretq_u8_s64(v); }
JAXDALI_INLINE int16x8_t S16(__m128i v) { return vreinterpretq_s16_s64(v); }
JAXDALI_INLINE uint16x8_t U16(__m128i v) { return vreinterpretq_u16_s64(v); }
JAXDALI_INLINE int32x4_t S32(__m128i v) { return vreinterpretq_s32_s64(v); }
JAXDALI_INLINE uint32x4_t U32(__m128i v) { return vreinterpretq_u32_s64(v); }
JAXDALI_INLINE __m128i Bits(int8x16_t v) { return vreinterpretq_s64_s8(v); }
JAXDALI_INLINE __m128i Bits(uint8x16_t v) { return vreinterpretq_s64_u8(v); }
JAXDALI_INLINE __m128i Bits(int16x8_t v) { return vreinterpretq_s64_s16(v); }
JAXDALI_INLINE __m128i Bits(uint16x8_t v) { return vreinterpretq_s64_u16(v); }
JAXDALI_INLINE __m128i Bits(int32x4_t v) { return vreinterpretq_s64_s32(v); }
JAXDALI_INLINE __m128i Bits(uint32x4_t v) { return vreinterpretq_s64_u32(v); }
JAXDALI_INLINE __m128i Bits(int64x2_t v) { return v; }
JAXDALI_INLINE __m128 Floats(uint32x4_t v) { return vreinterpretq_f32_u32(v); }
JAXDALI_INLINE uint32x4_t Mask(__m128 v) { return vreinterpretq_u32_f32(v); }
JAXDALI_INLINE __m128d Doubles(uint64x2_t v) { return vreinterpretq_f64_u64(v); }
JAXDALI_INLINE uint64x2_t Mask(__m128d v) { return vreinterpretq_u64_f64(v); }

template <class V, class T>
JAXDALI_INLINE V Load(const T* elements) {
  V v;
  std::memcpy(&v, elements, sizeof v);
  return v;
}

}  // namespace neon

// --- Operations on one and on two registers -----------------------------------------------------------------------
// Operations of integers, floats and doubles: on a, on a and b, on a and a number n.

#define JAXDALI_OF_A(one, two, vector, ...)                                   \
  JAXDALI_INLINE __m128##vector one(__m128##vector a) { return __VA_ARGS__; } \
  JAXDALI_INLINE __m256##vector two(__m256##vector a) { return {one(a.low), one(a.high)}; }
#define JAXDALI_OF_AB(one, two, vector, ...)                                                    \
  JAXDALI_INLINE __m128##vector one(__m128##vector a, __m128##vector b) { return __VA_ARGS__; } \
  JAXDALI_INLINE __m256##vector two(__m256##vector a, __m256##vector b) {                       \
    return {one(a.low, b.low), one(a.high, b.high)};                                            \
  }
#define JAXDALI_OF_AN(one, two, ...)                                               \
  JAXDALI_INLINE __m128i one(__m128i a, int n) { return neon::Bits(__VA_ARGS__); } \
  JAXDALI_INLINE __m256i two(__m256i a, int n) { return {one(a.low, n), one(a.high, n)}; }
#define JAXDALI_INTEGERS(name, ...) JAXDALI_OF_AB(_mm_##name, _mm256_##name, i, neon::Bits(__VA_ARGS__))
#define JAXDALI_FLOATS(name, ...) JAXDALI_OF_AB(_mm_##name##_ps, _mm256_##name##_ps, , __VA_ARGS__)
#define JAXDALI_SHIFT(name, ...) JAXDALI_OF_AN(_mm_##name, _mm256_##name, __VA_ARGS__)

JAXDALI_OF_AB(_mm_and_si128, _mm256_and_si256, i, a& b)
JAXDALI_OF_AB(_mm_or_si128, _mm256_or_si256, i, a | b)
JAXDALI_OF_AB(_mm_xor_si128, _mm256_xor_si256, i, a ^ b)
JAXDALI_OF_AB(_mm_andnot_si128, _mm256_andnot_si256, i, ~a& b)
JAXDALI_OF_AB(_mm_and_ps, _mm256_and_ps, , neon::Floats(neon::Mask(a) & neon::Mask(b)))
JAXDALI_OF_AB(_mm_and_pd, _mm256_and_pd, d, neon::Doubles(neon::Mask(a) & neon::Mask(b)))

JAXDALI_INTEGERS(add_epi16, vaddq_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(add_epi32, vaddq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(add_epi64, vaddq_s64(a, b))
JAXDALI_INTEGERS(sub_epi16, vsubq_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(sub_epi32, vsubq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(subs_epi16, vqsubq_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(min_epi32, vminq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(max_epi32, vmaxq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(cmpeq_epi32, vceqq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(cmpgt_epi32, vcgtq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(mullo_epi16, vmulq_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(mullo_epi32, vmulq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(mulhi_epu16,
                 vuzp2q_u16(vreinterpretq_u16_u32(vmull_u16(vget_low_u16(neon::U16(a)), vget_low_u16(neon::U16(b)))),
                            vreinterpretq_u16_u32(vmull_high_u16(neon::U16(a), neon::U16(b)))))
JAXDALI_INTEGERS(mulhrs_epi16, vqrdmulhq_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(madd_epi16, vpaddq_s32(vmull_s16(vget_low_s16(neon::S16(a)), vget_low_s16(neon::S16(b))),
                                        vmull_high_s16(neon::S16(a), neon::S16(b))))
JAXDALI_INTEGERS(hadd_epi32, vpaddq_s32(neon::S32(a), neon::S32(b)))
JAXDALI_OF_A(_mm_abs_epi16, _mm256_abs_epi16, i, neon::Bits(vabsq_s16(neon::S16(a))))

JAXDALI_SHIFT(slli_epi16, neon::U16(a) << vdupq_n_u16(static_cast<uint16_t>(n)))
JAXDALI_SHIFT(slli_epi32, neon::S32(a) << vdupq_n_s32(n))
JAXDALI_SHIFT(srli_epi16, neon::U16(a) >> vdupq_n_u16(static_cast<uint16_t>(n)))
JAXDALI_SHIFT(srli_epi32, neon::U32(a) >> vdupq_n_u32(static_cast<uint32_t>(n)))
JAXDALI_SHIFT(srai_epi16, neon::S16(a) >> vdupq_n_s16(static_cast<int16_t>(n)))
JAXDALI_SHIFT(srai_epi32, neon::S32(a) >> vdupq_n_s32(n))

// Narrows each register with saturation. The elements of a come first.
JAXDALI_INTEGERS(packs_epi16, vqmovn_high_s16(vqmovn_s16(neon::S16(a)), neon::S16(b)))
JAXDALI_INTEGERS(packs_epi32, vqmovn_high_s32(vqmovn_s32(neon::S32(a)), neon::S32(b)))
JAXDALI_INTEGERS(packus_epi16, vqmovun_high_s16(vqmovun_s16(neon::S16(a)), neon::S16(b)))
JAXDALI_INTEGERS(packus_epi32, vqmovun_high_s32(vqmovun_s32(neon::S32(a)), neon::S32(b)))
JAXDALI_INTEGERS(unpacklo_epi8, vzip1q_s8(neon::S8(a), neon::S8(b)))
JAXDALI_INTEGERS(unpackhi_epi8, vzip2q_s8(neon::S8(a), neon::S8(b)))
JAXDALI_INTEGERS(unpacklo_epi16, vzip1q_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(unpackhi_epi16, vzip2q_s16(neon::S16(a), neon::S16(b)))
JAXDALI_INTEGERS(unpacklo_epi32, vzip1q_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(unpackhi_epi32, vzip2q_s32(neon::S32(a), neon::S32(b)))
JAXDALI_INTEGERS(unpacklo_epi64, vzip1q_s64(a, b))
JAXDALI_INTEGERS(unpackhi_epi64, vzip2q_s64(a, b))
// An index with its highest bit set gives 0. Here an index beyond the table does that; otherwise the lowest four bits
// count.
JAXDALI_INTEGERS(shuffle_epi8, vqtbl1q_u8(neon::U8(a), neon::U8(b) & 0x8F))

// The minimum and the maximum are b if both numbers are equal or one is NaN.
JAXDALI_FLOATS(add, vaddq_f32(a, b))
JAXDALI_FLOATS(sub, vsubq_f32(a, b))
JAXDALI_FLOATS(mul, vmulq_f32(a, b))
JAXDALI_FLOATS(min, vbslq_f32(vcltq_f32(a, b), a, b))
JAXDALI_FLOATS(max, vbslq_f32(vcgtq_f32(a, b), a, b))
JAXDALI_FLOATS(cmpge, neon::Floats(vcgeq_f32(a, b)))
JAXDALI_FLOATS(cmple, neon::Floats(vcleq_f32(a, b)))
JAXDALI_FLOATS(cmpord, neon::Floats(vceqq_f32(a, a) & vceqq_f32(b, b)))
JAXDALI_OF_AB(_mm_sub_pd, _mm256_sub_pd, d, vsubq_f64(a, b))
JAXDALI_OF_AB(_mm_cmpge_pd, _mm256_cmpge_pd, d, neon::Doubles(vcgeq_f64(a, b)))
JAXDALI_OF_AB(_mm_cmplt_pd, _mm256_cmplt_pd, d, neon::Doubles(vcltq_f64(a, b)))

#undef JAXDALI_OF_A
#undef JAXDALI_OF_AB
#undef JAXDALI_OF_AN
#undef JAXDALI_INTEGERS
#undef JAXDALI_FLOATS
#undef JAXDALI_SHIFT

inline constexpr int _CMP_ORD_Q = 0, _CMP_GE_OQ = 1, _CMP_LE_OQ = 2, _CMP_LT_OQ = 3;
JAXDALI_INLINE __m256 _mm256_cmp_ps(__m256 a, __m256 b, int predicate) {
  return predicate == _CMP_ORD_Q   ? _mm256_cmpord_ps(a, b)
         : predicate == _CMP_GE_OQ ? _mm256_cmpge_ps(a, b)
                                   : _mm256_cmple_ps(a, b);
}
JAXDALI_INLINE __m256d _mm256_cmp_pd(__m256d a, __m256d b, int predicate) {
  return predicate == _CMP_GE_OQ ? _mm256_cmpge_pd(a, b) : _mm256_cmplt_pd(a, b);
}
JAXDALI_INLINE __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}

// The highest bit of each byte of the mask decides.
JAXDALI_INLINE __m128i _mm_blendv_epi8(__m128i a, __m128i b, __m128i mask) {
  const uint8x16_t bits = vreinterpretq_u8_s8(vshrq_n_s8(neon::S8(mask), 7));
  return neon::Bits(vbslq_u8(bits, neon::U8(b), neon::U8(a)));
}
JAXDALI_INLINE __m256i _mm256_blendv_epi8(__m256i a, __m256i b, __m256i mask) {
  return {_mm_blendv_epi8(a.low, b.low, mask.low), _mm_blendv_epi8(a.high, b.high, mask.high)};
}
JAXDALI_INLINE int _mm256_testz_si256(__m256i a, __m256i b) {
  return vmaxvq_u32(neon::U32((a.low & b.low) | (a.high & b.high))) == 0;
}

// Shifts by a number in a register. NEON shifts to the left, so to the right by a negative number.
JAXDALI_INLINE __m256i _mm256_srl_epi32(__m256i v, __m128i n) {
  const int32x4_t negated_n = vdupq_n_s32(-vgetq_lane_s32(neon::S32(n), 0));
  return {neon::Bits(vshlq_u32(neon::U32(v.low), negated_n)), neon::Bits(vshlq_u32(neon::U32(v.high), negated_n))};
}
JAXDALI_INLINE __m256i _mm256_sra_epi32(__m256i v, __m128i n) {
  const int32x4_t negated_n = vdupq_n_s32(-vgetq_lane_s32(neon::S32(n), 0));
  return {neon::Bits(vshlq_s32(neon::S32(v.low), negated_n)), neon::Bits(vshlq_s32(neon::S32(v.high), negated_n))};
}

// --- Memory and constants -----------------------------------------------------------------------------------------

JAXDALI_INLINE __m128i _mm_loadu_si128(const __m128i* p) { return neon::Load<__m128i>(p); }
JAXDALI_INLINE __m128i _mm_load_si128(const __m128i* p) { return neon::Load<__m128i>(p); }
JAXDALI_INLINE __m128i _mm_loadl_epi64(const __m128i* p) {
  return vcombine_s64(neon::Load<int64x1_t>(p), vdup_n_s64(0));
}
JAXDALI_INLINE void _mm_storeu_si128(__m128i* p, __m128i v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE void _mm_storel_epi64(__m128i* p, __m128i v) { std::memcpy(p, &v, 8); }
JAXDALI_INLINE __m256i _mm256_loadu_si256(const __m256i* p) { return neon::Load<__m256i>(p); }
JAXDALI_INLINE __m256i _mm256_load_si256(const __m256i* p) { return neon::Load<__m256i>(p); }
JAXDALI_INLINE void _mm256_storeu_si256(__m256i* p, __m256i v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE void _mm256_store_si256(__m256i* p, __m256i v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE __m128 _mm_loadu_ps(const float* p) { return neon::Load<__m128>(p); }
JAXDALI_INLINE void _mm_storeu_ps(float* p, __m128 v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE void _mm_store_ps(float* p, __m128 v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE __m256 _mm256_loadu_ps(const float* p) { return neon::Load<__m256>(p); }
JAXDALI_INLINE void _mm256_storeu_ps(float* p, __m256 v) { std::memcpy(p, &v, sizeof v); }
JAXDALI_INLINE __m256d _mm256_loadu_pd(const double* p) { return neon::Load<__m256d>(p); }

JAXDALI_INLINE __m128i _mm_setr_epi8(int8_t a, int8_t b, int8_t c, int8_t d, int8_t e, int8_t f, int8_t g, int8_t h,
                                     int8_t i, int8_t j, int8_t k, int8_t l, int8_t m, int8_t n, int8_t o, int8_t p) {
  return neon::Bits(int8x16_t{a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p});
}
JAXDALI_INLINE __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h) {
  return {neon::Bits(int32x4_t{a, b, c, d}), neon::Bits(int32x4_t{e, f, g, h})};
}
JAXDALI_INLINE __m256i _mm256_setr_epi64x(int64_t a, int64_t b, int64_t c, int64_t d) {
  return {int64x2_t{a, b}, int64x2_t{c, d}};
}
JAXDALI_INLINE __m256i _mm256_broadcastsi128_si256(__m128i v) { return {v, v}; }
JAXDALI_INLINE __m128i _mm_set1_epi8(int8_t v) { return neon::Bits(vdupq_n_s8(v)); }
JAXDALI_INLINE __m128i _mm_set1_epi32(int v) { return neon::Bits(vdupq_n_s32(v)); }
JAXDALI_INLINE __m256i _mm256_set1_epi8(int8_t v) { return _mm256_broadcastsi128_si256(_mm_set1_epi8(v)); }
JAXDALI_INLINE __m256i _mm256_set1_epi16(int16_t v) { return _mm256_broadcastsi128_si256(neon::Bits(vdupq_n_s16(v))); }
JAXDALI_INLINE __m256i _mm256_set1_epi32(int v) { return _mm256_broadcastsi128_si256(_mm_set1_epi32(v)); }
JAXDALI_INLINE __m256i _mm256_set1_epi64x(int64_t v) { return _mm256_broadcastsi128_si256(vdupq_n_s64(v)); }
JAXDALI_INLINE __m256i _mm256_setzero_si256() { return _mm256_set1_epi64x(0); }
JAXDALI_INLINE __m256i _mm256_setr_epi8(int8_t a, int8_t b, int8_t c, int8_t d, int8_t e, int8_t f, int8_t g, int8_t h,
                                        int8_t i, int8_t j, int8_t k, int8_t l, int8_t m, int8_t n, int8_t o, int8_t p,
                                        int8_t q, int8_t r, int8_t s, int8_t t, int8_t u, int8_t v, int8_t w, int8_t x,
                                        int8_t y, int8_t z, int8_t A, int8_t B, int8_t C, int8_t D, int8_t E,
                                        int8_t F) {
  return {_mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p),
          _mm_setr_epi8(q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F)};
}
JAXDALI_INLINE __m128 _mm_set1_ps(float v) { return vdupq_n_f32(v); }
JAXDALI_INLINE __m128 _mm_setzero_ps() { return vdupq_n_f32(0); }
JAXDALI_INLINE __m256 _mm256_set1_ps(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
JAXDALI_INLINE __m256 _mm256_setzero_ps() { return _mm256_set1_ps(0); }
JAXDALI_INLINE __m256 _mm256_broadcast_ss(const float* p) { return _mm256_set1_ps(*p); }
JAXDALI_INLINE __m256d _mm256_set1_pd(double v) { return {vdupq_n_f64(v), vdupq_n_f64(v)}; }
JAXDALI_INLINE __m128i _mm_cvtsi32_si128(int v) { return neon::Bits(vsetq_lane_s32(v, vdupq_n_s32(0), 0)); }
JAXDALI_INLINE int _mm_cvtsi128_si32(__m128i v) { return vgetq_lane_s32(neon::S32(v), 0); }
JAXDALI_INLINE int64_t _mm_cvtsi128_si64(__m128i v) { return vgetq_lane_s64(v, 0); }

// --- Halves, and permutations of elements ----------------------------------------------------------------------------
// Templates implement operations that x86 has for constants only, for the constants that occur here.

JAXDALI_INLINE __m128i _mm_castps_si128(__m128 v) { return vreinterpretq_s64_f32(v); }
JAXDALI_INLINE __m128 _mm_castpd_ps(__m128d v) { return vreinterpretq_f32_f64(v); }
JAXDALI_INLINE __m256i _mm256_castps_si256(__m256 v) { return {_mm_castps_si128(v.low), _mm_castps_si128(v.high)}; }
JAXDALI_INLINE __m256 _mm256_castsi256_ps(__m256i v) {
  return {vreinterpretq_f32_s64(v.low), vreinterpretq_f32_s64(v.high)};
}
JAXDALI_INLINE __m128i _mm256_castsi256_si128(__m256i v) { return v.low; }
JAXDALI_INLINE __m128d _mm256_castpd256_pd128(__m256d v) { return v.low; }
JAXDALI_INLINE __m256i _mm256_castsi128_si256(__m128i v) { return {v, v}; }
JAXDALI_INLINE __m256 _mm256_castps128_ps256(__m128 v) { return {v, v}; }
JAXDALI_INLINE __m128i _mm256_extracti128_si256(__m256i v, int half) { return half ? v.high : v.low; }
JAXDALI_INLINE __m128d _mm256_extractf128_pd(__m256d v, int half) { return half ? v.high : v.low; }
JAXDALI_INLINE __m256i _mm256_inserti128_si256(__m256i v, __m128i w, int half) {
  return half ? __m256i{v.low, w} : __m256i{w, v.high};
}

namespace neon {

// Names of the templates say what the constant `kControl` selects on x86. Two of four registers:
template <int kControl, class V>
JAXDALI_INLINE V Registers(V a, V b) {
  const decltype(a.low) from[4] = {a.low, a.high, b.low, b.high};
  return {from[kControl & 3], from[kControl >> 4 & 3]};
}
// The 64-bit elements in the order 0 2 1 3.
template <int kControl>
JAXDALI_INLINE __m256i EvenThenOdd(__m256i v) {
  static_assert(kControl == 0xD8);
  return {vzip1q_s64(v.low, v.high), vzip2q_s64(v.low, v.high)};
}
// The low half of a, the high half of b.
template <int kControl>
JAXDALI_INLINE __m256i HighOfSecond(__m256i a, __m256i b) {
  static_assert(kControl == 0xF0);
  return {a.low, b.high};
}
// In each half, one 32-bit element for all four.
template <int kControl>
JAXDALI_INLINE __m256i OneForAll(__m256i v) {
  static_assert(kControl % 0x55 == 0);
  return {Bits(vdupq_laneq_s32(S32(v.low), kControl & 3)), Bits(vdupq_laneq_s32(S32(v.high), kControl & 3))};
}
// The even (0x88) or odd (0xDD) elements of a, then of b.
template <int kControl>
JAXDALI_INLINE __m128 EverySecond(__m128 a, __m128 b) {
  static_assert(kControl == 0x88 || kControl == 0xDD);
  return kControl == 0x88 ? vuzp1q_f32(a, b) : vuzp2q_f32(a, b);
}
template <int kControl>
JAXDALI_INLINE __m256 EverySecond(__m256 a, __m256 b) {
  return {EverySecond<kControl>(a.low, b.low), EverySecond<kControl>(a.high, b.high)};
}
// 32-bit elements of both registers, by index.
JAXDALI_INLINE __m128i Elements(__m256i v, __m128i control) {
  // The four bytes of element i are 4 * i to 4 * i + 3.
  const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), U32(control), 0x04040404);
  return Bits(vqtbl2q_u8({{U8(v.low), U8(v.high)}}, vreinterpretq_u8_u32(bytes)));
}

}  // namespace neon

#define _MM_SHUFFLE(a, b, c, d) ((a) << 6 | (b) << 4 | (c) << 2 | (d))
#define _mm256_permute2x128_si256(a, b, control) neon::Registers<control>(a, b)
#define _mm256_permute2f128_ps(a, b, control) neon::Registers<control>(a, b)
#define _mm256_permute4x64_epi64(v, control) neon::EvenThenOdd<control>(v)
#define _mm256_blend_epi32(a, b, control) neon::HighOfSecond<control>(a, b)
#define _mm256_shuffle_epi32(v, control) neon::OneForAll<control>(v)
#define _mm_shuffle_ps(a, b, control) neon::EverySecond<control>(a, b)
#define _mm256_shuffle_ps(a, b, control) neon::EverySecond<control>(a, b)
JAXDALI_INLINE __m256i _mm256_permutevar8x32_epi32(__m256i v, __m256i control) {
  return {neon::Elements(v, control.low), neon::Elements(v, control.high)};
}
JAXDALI_INLINE __m256 _mm256_permutevar8x32_ps(__m256 v, __m256i control) {
  return _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(_mm256_castps_si256(v), control));
}

// --- Conversions --------------------------------------------------------------------------------------------------

JAXDALI_INLINE __m256i _mm256_cvtepu8_epi16(__m128i v) {
  return {neon::Bits(vmovl_u8(vget_low_u8(neon::U8(v)))), neon::Bits(vmovl_high_u8(neon::U8(v)))};
}
JAXDALI_INLINE __m256i _mm256_cvtepu16_epi32(__m128i v) {
  return {neon::Bits(vmovl_u16(vget_low_u16(neon::U16(v)))), neon::Bits(vmovl_high_u16(neon::U16(v)))};
}
JAXDALI_INLINE __m256i _mm256_cvtepi16_epi32(__m128i v) {
  return {neon::Bits(vmovl_s16(vget_low_s16(neon::S16(v)))), neon::Bits(vmovl_high_s16(neon::S16(v)))};
}
JAXDALI_INLINE __m256i _mm256_cvtepu8_epi32(__m128i v) { return _mm256_cvtepu16_epi32(_mm256_cvtepu8_epi16(v).low); }
JAXDALI_INLINE __m128i _mm_cvtepu8_epi32(__m128i v) { return _mm256_cvtepu8_epi32(v).low; }
JAXDALI_INLINE __m128 _mm_cvtepi32_ps(__m128i v) { return vcvtq_f32_s32(neon::S32(v)); }
JAXDALI_INLINE __m256 _mm256_cvtepi32_ps(__m256i v) { return {_mm_cvtepi32_ps(v.low), _mm_cvtepi32_ps(v.high)}; }
JAXDALI_INLINE __m128i _mm_cvttps_epi32(__m128 v) { return neon::Bits(vcvtq_s32_f32(v)); }
JAXDALI_INLINE __m256i _mm256_cvttps_epi32(__m256 v) { return {_mm_cvttps_epi32(v.low), _mm_cvttps_epi32(v.high)}; }
JAXDALI_INLINE __m128i _mm256_cvttpd_epi32(__m256d v) {
  return neon::Bits(vmovn_high_s64(vmovn_s64(vcvtq_s64_f64(v.low)), vcvtq_s64_f64(v.high)));
}
JAXDALI_INLINE __m256d _mm256_cvtepi32_pd(__m128i v) {
  return {vcvtq_f64_s64(vmovl_s32(vget_low_s32(neon::S32(v)))), vcvtq_f64_s64(vmovl_high_s32(neon::S32(v)))};
}
JAXDALI_INLINE __m128 _mm256_cvtpd_ps(__m256d v) { return vcvt_high_f32_f64(vcvt_f32_f64(v.low), v.high); }
JAXDALI_INLINE __m256 _mm256_cvtph_ps(__m128i v) {
  const float16x8_t halves = vreinterpretq_f16_s64(v);
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline constexpr int _MM_FROUND_TO_NEAREST_INT = 0;
JAXDALI_INLINE __m128i _mm256_cvtps_ph(__m256 v, int) {  // rounds half to even, the only mode used here
  return vreinterpretq_s64_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high));
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_NEON_H_
