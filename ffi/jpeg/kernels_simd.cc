// The kernels for CPUs with AVX2, BMI and BMI2, compiled with those enabled (ffi/options.cmake), and for aarch64, where
// common/neon.h replaces the intrinsics. In order: DCTs, upsampling, colours. Do not use inline functions of other
// files here: the linker could keep this version of them for all CPUs.
#include "ffi/common/vectors.h"
#include "ffi/jpeg/kernels.h"

#if defined(JAXDALI_VECTORS)

namespace jaxdali::jpeg {
namespace {

JAXDALI_INLINE __m256i Load(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }
JAXDALI_INLINE __m256i LoadU(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
JAXDALI_INLINE void StoreU(void* to, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(to), v); }
JAXDALI_INLINE __m256i Widen(const uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
JAXDALI_INLINE __m256i Set16(int v) { return _mm256_set1_epi16(static_cast<int16_t>(v)); }
// For pairs of 16-bit values: a times the first plus b times the second.
JAXDALI_INLINE __m256i Madd(__m256i pairs, int a, int b) {
  const uint32_t weights = static_cast<uint16_t>(a) | static_cast<uint32_t>(static_cast<uint16_t>(b)) << 16;
  return _mm256_madd_epi16(pairs, _mm256_set1_epi32(static_cast<int32_t>(weights)));
}

// --- the DCTs of idct.h and forward_dct.h --------------------------------------------------------------------------
// A register holds a row of two blocks: eight 16-bit values of the first, eight of the second.

template <bool kHigh>
JAXDALI_INLINE __m256i Unpack(__m256i a, __m256i b) {
  return kHigh ? _mm256_unpackhi_epi16(a, b) : _mm256_unpacklo_epi16(a, b);
}

// The products of both directions, for four columns of each block, widened to 32 bits: columns 4 to 7 with kHigh, 0 to
// 3 without. Two values give the even part, four the odd part.
template <bool kHigh>
JAXDALI_INLINE void Rotate(__m256i v2, __m256i v6, __m256i* e2, __m256i* e3) {
  const __m256i v26 = Unpack<kHigh>(v2, v6);
  *e2 = Madd(v26, 4433, -10704);
  *e3 = Madd(v26, 10703, 4433);
}
template <bool kHigh>
JAXDALI_INLINE void Rotate(__m256i v1, __m256i v3, __m256i v5, __m256i v7, __m256i (&odd)[4]) {
  const __m256i v17 = Unpack<kHigh>(v1, v7), v35 = Unpack<kHigh>(v3, v5);
  const __m256i z = Unpack<kHigh>(_mm256_add_epi16(v7, v3), _mm256_add_epi16(v5, v1));
  const __m256i o3 = Madd(z, -6436, 9633), o4 = Madd(z, 9633, 6437);
  odd[0] = _mm256_add_epi32(Madd(v17, 4926, -7373), o4);
  odd[1] = _mm256_add_epi32(Madd(v35, 4177, -20995), o3);
  odd[2] = _mm256_add_epi32(Madd(v35, -20995, -4176), o4);
  odd[3] = _mm256_add_epi32(Madd(v17, -7373, -4927), o3);
}

// One dimension of the inverse transform for four columns of each block. kShift: 11 for columns, 18 for rows. Constants
// are multiplied by 2^13, see IdctPass. kQuarter: rows 4 to 7 are 0.
template <int kShift, bool kHigh, bool kQuarter>
JAXDALI_INLINE void HalfPass(const __m256i (&v)[8], __m256i (&out)[8]) {
  const __m256i zero = _mm256_setzero_si256(), round = _mm256_set1_epi32(1 << (kShift - 1));
  // Times 8192: moved to the upper half of 32 bits, then shifted down by three.
  auto scale = [&](__m256i x) __attribute__((always_inline)) {
    return _mm256_add_epi32(_mm256_srai_epi32(Unpack<kHigh>(zero, x), 3), round);
  };
  __m256i a, b, e2, e3, odd[4];
  if (kQuarter) {
    // With rows 4 to 7 zero, the terms of the other branch have two inputs, whose constants are added up.
    const __m256i v2 = Unpack<kHigh>(v[2], zero), v13 = Unpack<kHigh>(v[1], v[3]);
    a = b = scale(v[0]);
    e2 = Madd(v2, 4433, 0);
    e3 = Madd(v2, 10703, 0);
    odd[0] = Madd(v13, 4926 + 6437, 9633);
    odd[1] = Madd(v13, 9633, 4177 - 6436);
    odd[2] = Madd(v13, 6437, 9633 - 20995);
    odd[3] = Madd(v13, 9633 - 7373, -6436);
  } else {
    a = scale(_mm256_add_epi16(v[0], v[4]));
    b = scale(_mm256_sub_epi16(v[0], v[4]));
    Rotate<kHigh>(v[2], v[6], &e2, &e3);
    Rotate<kHigh>(v[1], v[3], v[5], v[7], odd);
  }
  const __m256i even[4] = {_mm256_add_epi32(a, e3), _mm256_add_epi32(b, e2), _mm256_sub_epi32(b, e2),
                           _mm256_sub_epi32(a, e3)};
  for (int i = 0; i < 4; i++) {
    out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), kShift);
    out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), kShift);
  }
}

// Transposes each block. kQuarter: rows 4 to 7, which become columns, are left out.
template <bool kQuarter>
JAXDALI_INLINE void Transpose(__m256i (&v)[8]) {
  __m256i t[8];
  for (int i = 0; i < 4; i++) {
    t[i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    if (!kQuarter) t[i + 4] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < (kQuarter ? 4 : 8); i += 4) {
    const __m256i a = _mm256_unpacklo_epi32(t[i], t[i + 1]), b = _mm256_unpackhi_epi32(t[i], t[i + 1]);
    const __m256i c = _mm256_unpacklo_epi32(t[i + 2], t[i + 3]), d = _mm256_unpackhi_epi32(t[i + 2], t[i + 3]);
    v[i] = _mm256_unpacklo_epi64(a, c);
    v[i + 1] = _mm256_unpackhi_epi64(a, c);
    v[i + 2] = _mm256_unpacklo_epi64(b, d);
    v[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
}

// Both dimensions. The result's columns are in the registers. kQuarter: only the upper left quarter is nonzero.
template <bool kQuarter>
JAXDALI_INLINE void Transform2d(__m256i (&v)[8]) {
  __m256i low[8], high[8];
  HalfPass<11, /*kHigh=*/false, kQuarter>(v, low);
  if (kQuarter) {
    for (int i = 0; i < 8; i++) v[i] = _mm256_packs_epi32(low[i], low[i]);
  } else {
    HalfPass<11, /*kHigh=*/true, /*kQuarter=*/false>(v, high);
    for (int i = 0; i < 8; i++) v[i] = _mm256_packs_epi32(low[i], high[i]);
  }
  Transpose<kQuarter>(v);
  HalfPass<18, /*kHigh=*/false, kQuarter>(v, low);
  HalfPass<18, /*kHigh=*/true, kQuarter>(v, high);
  for (int i = 0; i < 8; i++) v[i] = _mm256_packs_epi32(low[i], high[i]);
}

// The first pass of ToSixteenOfOne (scaled_idct.h), which turns columns into four rows, for half of the columns of each
// block.
template <bool kHigh>
JAXDALI_INLINE void HalfPass4(const __m256i (&v)[8], __m256i (&out)[4]) {
  // The shift is 12. v[0] times 2^14: moved to the upper half of 32 bits, then shifted down by two.
  const __m256i zero = _mm256_setzero_si256(), round = _mm256_set1_epi32(1 << 11);
  const __m256i v13 = Unpack<kHigh>(v[1], v[3]), v57 = Unpack<kHigh>(v[5], v[7]);
  const __m256i even0 = _mm256_add_epi32(_mm256_srai_epi32(Unpack<kHigh>(zero, v[0]), 2), round);
  const __m256i even2 = Madd(Unpack<kHigh>(v[2], v[6]), 15137, -6270);
  const __m256i odd0 = _mm256_add_epi32(Madd(v13, 8697, -17799), Madd(v57, 11893, -1730));
  const __m256i odd2 = _mm256_add_epi32(Madd(v13, 20995, 7373), Madd(v57, -4926, -4176));
  const __m256i a = _mm256_add_epi32(even0, even2), b = _mm256_sub_epi32(even0, even2);
  out[0] = _mm256_srai_epi32(_mm256_add_epi32(a, odd2), 12);
  out[1] = _mm256_srai_epi32(_mm256_add_epi32(b, odd0), 12);
  out[2] = _mm256_srai_epi32(_mm256_sub_epi32(b, odd0), 12);
  out[3] = _mm256_srai_epi32(_mm256_sub_epi32(a, odd2), 12);
}
// The same for ToFourOfOne: two rows.
template <bool kHigh>
JAXDALI_INLINE void HalfPass2(const __m256i (&v)[8], __m256i (&out)[2]) {
  // The shift is 13. v[0] times 2^15: moved to the upper half of 32 bits, then shifted down by one.
  const __m256i zero = _mm256_setzero_si256(), round = _mm256_set1_epi32(1 << 12);
  const __m256i even = _mm256_add_epi32(_mm256_srai_epi32(Unpack<kHigh>(zero, v[0]), 1), round);
  const __m256i odd =
      _mm256_add_epi32(Madd(Unpack<kHigh>(v[1], v[3]), 29692, -10426), Madd(Unpack<kHigh>(v[5], v[7]), 6967, -5906));
  out[0] = _mm256_srai_epi32(_mm256_add_epi32(even, odd), 13);
  out[1] = _mm256_srai_epi32(_mm256_sub_epi32(even, odd), 13);
}

// Converts the columns of two blocks to rows of bytes, side by side.
JAXDALI_INLINE void StoreSamples(const __m256i (&v)[8], uint8_t* samples, int64_t pitch) {
  // Saturates to bytes, then transposes each block in three steps: pairs, fours and eights of neighbours in a row.
  const __m256i p0 = _mm256_packs_epi16(v[0], v[4]), p1 = _mm256_packs_epi16(v[1], v[5]);
  const __m256i p2 = _mm256_packs_epi16(v[2], v[6]), p3 = _mm256_packs_epi16(v[3], v[7]);
  const __m256i q01 = _mm256_unpacklo_epi8(p0, p1), q45 = _mm256_unpackhi_epi8(p0, p1);
  const __m256i q23 = _mm256_unpacklo_epi8(p2, p3), q67 = _mm256_unpackhi_epi8(p2, p3);
  const __m256i l0 = _mm256_unpacklo_epi16(q01, q23), h0 = _mm256_unpackhi_epi16(q01, q23);
  const __m256i l1 = _mm256_unpacklo_epi16(q45, q67), h1 = _mm256_unpackhi_epi16(q45, q67);
  const __m256i rows[4] = {_mm256_unpacklo_epi32(l0, l1), _mm256_unpackhi_epi32(l0, l1), _mm256_unpacklo_epi32(h0, h1),
                           _mm256_unpackhi_epi32(h0, h1)};
  const __m256i bias = _mm256_set1_epi8(static_cast<char>(128));
  for (int i = 0; i < 4; i++) {
    // Flipping the highest bit adds 128, the level shift. 0xD8 exchanges the second and third quarter: two rows of the
    // first block and two of the second one become two rows of both.
    const __m256i rows_of_two = _mm256_permute4x64_epi64(_mm256_xor_si256(rows[i], bias), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(samples + 2 * i * pitch), _mm256_castsi256_si128(rows_of_two));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(samples + (2 * i + 1) * pitch),
                     _mm256_extracti128_si256(rows_of_two, 1));
  }
}

// Divides by 2^kShift, rounding halves up.
template <int kShift>
JAXDALI_INLINE __m256i Descale(__m256i v) {
  return _mm256_srai_epi32(_mm256_add_epi32(v, _mm256_set1_epi32(1 << (kShift - 1))), kShift);
}

// ForwardPass of forward_dct.h for the eight columns of each block. The values that are added fit into 16 bits.
template <int kShift>
JAXDALI_INLINE void ForwardColumns(__m256i (&v)[8]) {
  __m256i s[4], d[4], odd_low[4], odd_high[4], low2, low6, high2, high6;
  for (int i = 0; i < 4; i++) {
    s[i] = _mm256_add_epi16(v[i], v[7 - i]);
    d[i] = _mm256_sub_epi16(v[i], v[7 - i]);
  }
  const __m256i a = _mm256_add_epi16(s[0], s[3]), b = _mm256_add_epi16(s[1], s[2]);
  const __m256i c = _mm256_sub_epi16(s[1], s[2]), e = _mm256_sub_epi16(s[0], s[3]);
  v[0] = _mm256_add_epi16(a, b);
  v[4] = _mm256_sub_epi16(a, b);
  for (int i = 0; i < 8; i += 4)
    v[i] = kShift < 0 ? _mm256_slli_epi16(v[i], 2) : _mm256_srai_epi16(_mm256_add_epi16(v[i], Set16(2)), 2);
  auto narrow = [](__m256i low, __m256i high) __attribute__((always_inline)) {
    return _mm256_packs_epi32(Descale<13 + kShift>(low), Descale<13 + kShift>(high));
  };
  Rotate<false>(e, c, &low6, &low2);
  Rotate<true>(e, c, &high6, &high2);
  v[2] = narrow(low2, high2);
  v[6] = narrow(low6, high6);
  Rotate<false>(d[0], d[1], d[2], d[3], odd_low);
  Rotate<true>(d[0], d[1], d[2], d[3], odd_high);
  for (int i = 0; i < 4; i++) v[2 * i + 1] = narrow(odd_low[i], odd_high[i]);
}

// Quantizes a row of coefficients of each block, which are scaled by 8, and turns it back: Requantize of forward_dct.h.
JAXDALI_INLINE __m256i RequantizeRow(__m256i v, const Quantizers& quantizers, int y) {
  auto row = [&](const void* table) __attribute__((always_inline)) {  // for both blocks
    return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(table) + y));
  };
  const __m256i quantizer = row(quantizers.quantizer);
  // A half of the divisor is added, 4 * quantizer, and 8 is divided off. Then comes the division of Quantizers.
  const __m256i size = _mm256_add_epi16(_mm256_abs_epi16(v), _mm256_slli_epi16(quantizer, 2));
  const __m256i n = _mm256_slli_epi16(_mm256_srli_epi16(size, 3), 5);
  const __m256i level = _mm256_mulhi_epu16(_mm256_mulhi_epu16(n, row(quantizers.reciprocal)), row(quantizers.scale));
  const __m256i sign = _mm256_srai_epi16(v, 15);  // -1 where v is negative
  return _mm256_mullo_epi16(_mm256_sub_epi16(_mm256_xor_si256(level, sign), sign), quantizer);
}

// The fast versions of everything that `Isa` names in block.h, band.h and progressive.h.
struct Simd {
  // CutBits, as one instruction if there is one.
  static JAXDALI_INLINE uint32_t Cut(uint64_t window, uint32_t field) {
#if defined(__x86_64__)
    return static_cast<uint32_t>(__builtin_ia32_bextr_u64(window, field));
#else
    return CutBits(window, field);
#endif
  }
  // DepositBits, as one instruction if there is one.
  static JAXDALI_INLINE uint64_t Deposit(uint64_t bits, uint64_t mask) {
#if defined(__x86_64__)
    return __builtin_ia32_pdep_di(bits, mask);
#else
    return DepositBits(bits, mask);
#endif
  }

  // For scaled-down images (scaled_idct.h): each block of a pair becomes 4 x 4 samples, 2 x 2, or one. They clear the
  // coefficients. False: values are so large that libjpeg-turbo's result may differ.
  static JAXDALI_INLINE bool ToSixteen(int16_t* coefficients, const int16_t* quantizer, uint8_t* samples,
                                       int64_t pitch) {
    __m256i v[8], low[4], high[4], sums[4], magnitudes = _mm256_setzero_si256();
    bool is_exact = Dequantize(coefficients, quantizer, v);
    HalfPass4<false>(v, low);
    HalfPass4<true>(v, high);
    // The second pass: a sample is a weighted sum over the columns. See `pass` in ToSixteenOfOne.
    const __m256i weights[4] = {
        Weights(16384, 20995, 15137, 7373, 0, -4926, -6270, -4176),
        Weights(16384, 8697, -15137, -17799, 0, 11893, 6270, -1730),
        Weights(16384, -8697, -15137, 17799, 0, -11893, 6270, 1730),
        Weights(16384, -20995, 15137, -7373, 0, 4926, -6270, 4176),
    };
    for (int y = 0; y < 4; y++) {
      const __m256i row = _mm256_packs_epi32(low[y], high[y]);
      magnitudes = _mm256_or_si256(magnitudes, _mm256_abs_epi16(row));
      sums[y] = Descale<19>(SumOfEach(_mm256_madd_epi16(row, weights[0]), _mm256_madd_epi16(row, weights[1]),
                                      _mm256_madd_epi16(row, weights[2]), _mm256_madd_epi16(row, weights[3])));
    }
    const __m256i a = _mm256_packs_epi32(sums[0], sums[1]), b = _mm256_packs_epi32(sums[2], sums[3]);
    // Values below 2^14 after the columns and below 2^9 at the end can't overflow; ORed magnitudes test all at once.
    is_exact &= AreBelow<14>(magnitudes);
    is_exact &= AreBelow<9>(_mm256_or_si256(_mm256_abs_epi16(a), _mm256_abs_epi16(b)));
    const __m256i bytes = ToBytes(a, b);  // four rows of the first block, four of the second
    const __m128i first_block = _mm256_castsi256_si128(bytes), second_block = _mm256_extracti128_si256(bytes, 1);
    const __m128i rows[2] = {_mm_unpacklo_epi32(first_block, second_block),
                             _mm_unpackhi_epi32(first_block, second_block)};
    for (int y = 0; y < 4; y += 2) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(samples + y * pitch), rows[y / 2]);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(samples + (y + 1) * pitch),
                       _mm_unpackhi_epi64(rows[y / 2], rows[y / 2]));
    }
    return is_exact;
  }

  // The same for 2 x 2 samples.
  static JAXDALI_INLINE bool ToFour(int16_t* coefficients, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
    __m256i v[8], low[2], high[2], rows[2];
    bool is_exact = Dequantize(coefficients, quantizer, v);
    HalfPass2<false>(v, low);
    HalfPass2<true>(v, high);
    // The second pass, see ToFourOfOne. The first column's weight, 32768, does not fit into 16 bits, so the column also
    // takes the place of the fifth one, with the weight 16384 at both.
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15));
    for (int y = 0; y < 2; y++) rows[y] = _mm256_packs_epi32(low[y], high[y]);
    is_exact &= AreBelow<14>(_mm256_or_si256(_mm256_abs_epi16(rows[0]), _mm256_abs_epi16(rows[1])));
    for (__m256i& row : rows) row = _mm256_shuffle_epi8(row, order);
    const __m256i left = Weights(16384, 29692, 0, -10426, 16384, 6967, 0, -5906),
                  right = Weights(16384, -29692, 0, 10426, 16384, -6967, 0, 5906);
    const __m256i sums = Descale<20>(SumOfEach(_mm256_madd_epi16(rows[0], left), _mm256_madd_epi16(rows[0], right),
                                               _mm256_madd_epi16(rows[1], left), _mm256_madd_epi16(rows[1], right)));
    const __m256i words = _mm256_packs_epi32(sums, sums);
    is_exact &= AreBelow<9>(_mm256_abs_epi16(words));
    const __m256i bytes = ToBytes(words, words);  // two rows of the first block, two of the second
    const auto first_block = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(bytes))),
               second_block = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm256_extracti128_si256(bytes, 1)));
    const uint32_t rows_of_both[2] = {(first_block & 0xFFFF) | second_block << 16,
                                      first_block >> 16 | (second_block & 0xFFFF0000)};
    for (int y = 0; y < 2; y++) std::memcpy(samples + y * pitch, &rows_of_both[y], sizeof rows_of_both[y]);
    return is_exact;
  }

  // The same for one sample: each block's mean.
  static JAXDALI_INLINE bool ToOne(int16_t* coefficients, const int16_t* quantizer, uint8_t* samples) {
    bool is_exact = ToOneOfOne(coefficients, quantizer, samples);
    is_exact &= ToOneOfOne(coefficients + 8, quantizer + 8, samples + 1);
    for (int y = 0; y < 8; y++)
      _mm256_store_si256(reinterpret_cast<__m256i*>(coefficients + 16 * y), _mm256_setzero_si256());
    return is_exact;
  }

  // Transforms the coefficients of two blocks to 8 x 8 samples each, and clears them. `last`: the largest index of a
  // nonzero coefficient. False: a value of the first row is so large that libjpeg-turbo's result may differ, see Note
  // [Large values] in kernels_portable.cc.
  static JAXDALI_INLINE bool Transform(int16_t* coefficients, const int16_t* quantizer, int last, uint8_t* samples,
                                       int64_t pitch) {
    // Only DC: two fractional bits of the first pass, then 3 more for the factor 8. Blocks are flat.
    if (last == 0) {
      __m128i levels[2];
      for (int half = 0; half < 2; half++) {
        // Both products wrap, as in libjpeg-turbo.
        const int32_t dc = static_cast<int16_t>(coefficients[8 * half] * quantizer[8 * half] * 4);
        const int32_t level = ((dc + 16) >> 5) + 128;
        levels[half] = _mm_set1_epi8(static_cast<char>(level < 0 ? 0 : level > 255 ? 255 : level));
        coefficients[8 * half] = 0;
      }
      const __m128i row = _mm_unpacklo_epi64(levels[0], levels[1]);
      for (int y = 0; y < 8; y++) _mm_storeu_si128(reinterpret_cast<__m128i*>(samples + y * pitch), row);
      return true;
    }
    // Indices below 10 are in the upper left quarter.
    return last < 10 ? TransformAll<true>(coefficients, quantizer, samples, pitch)
                     : TransformAll<false>(coefficients, quantizer, samples, pitch);
  }

 private:
  // Dequantizes eight rows of a pair and clears them. False: the values are so large that the sums of scaled_idct.h may
  // overflow.
  static JAXDALI_INLINE bool Dequantize(int16_t* coefficients, const int16_t* quantizer, __m256i (&v)[8]) {
    __m256i magnitudes = _mm256_setzero_si256();
    for (int y = 0; y < 8; y++) {
      v[y] = _mm256_mullo_epi16(Load(coefficients + 16 * y), Load(quantizer + 16 * y));
      magnitudes = _mm256_or_si256(magnitudes, _mm256_abs_epi16(v[y]));
      _mm256_store_si256(reinterpret_cast<__m256i*>(coefficients + 16 * y), _mm256_setzero_si256());
    }
    return AreBelow<13>(magnitudes);
  }
  // Whether all values, which are not negative, are below 2^kBits.
  template <int kBits>
  static JAXDALI_INLINE bool AreBelow(__m256i v) {
    return _mm256_testz_si256(v, Set16(-(1 << kBits)));
  }
  // Weights of the columns, in both blocks.
  static JAXDALI_INLINE __m256i Weights(int a, int b, int c, int d, int e, int f, int g, int h) {
    auto two = [](int x, int y) { return (x & 0xFFFF) | static_cast<int>(static_cast<uint32_t>(y) << 16); };
    return _mm256_setr_epi32(two(a, b), two(c, d), two(e, f), two(g, h), two(a, b), two(c, d), two(e, f), two(g, h));
  }
  // In each lane, the sums of the four values of a, b, c and d.
  static JAXDALI_INLINE __m256i SumOfEach(__m256i a, __m256i b, __m256i c, __m256i d) {
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  }
  // Saturates to bytes and adds 128, the level shift.
  static JAXDALI_INLINE __m256i ToBytes(__m256i a, __m256i b) {
    return _mm256_xor_si256(_mm256_packs_epi16(a, b), _mm256_set1_epi8(static_cast<char>(128)));
  }

  // Transform for a pair whose coefficients are not only DC. kQuarter: only the upper left quarter is nonzero.
  template <bool kQuarter>
  static JAXDALI_INLINE bool TransformAll(int16_t* coefficients, const int16_t* quantizer, uint8_t* samples,
                                          int64_t pitch) {
    __m256i v[8];
    for (int y = 0; y < (kQuarter ? 4 : 8); y++) {
      v[y] = _mm256_mullo_epi16(Load(coefficients + 16 * y), Load(quantizer + 16 * y));
      _mm256_store_si256(reinterpret_cast<__m256i*>(coefficients + 16 * y), _mm256_setzero_si256());
    }
    // The limit 8192 of the note: its mask is 0xE000.
    const bool is_exact = _mm256_testz_si256(_mm256_abs_epi16(v[0]), Set16(0xE000));
    Transform2d<kQuarter>(v);
    StoreSamples(v, samples, pitch);
    return is_exact;
  }
};

// Compresses and decompresses blocks of 8 x 8 samples, two at a time.
void RequantizeBlocks(const Quantizers& quantizers, int64_t pairs, uint8_t* samples, int64_t pitch) {
  for (uint8_t* pair = samples; pair < samples + 16 * pairs; pair += 16) {
    __m256i v[8];
    for (int y = 0; y < 8; y++) v[y] = _mm256_sub_epi16(Widen(pair + y * pitch), Set16(128));
    Transpose</*kQuarter=*/false>(v);
    ForwardColumns<-2>(v);  // rows; keeps two more bits, which the other pass drops
    Transpose</*kQuarter=*/false>(v);
    ForwardColumns<2>(v);
    for (int y = 0; y < 8; y++) v[y] = RequantizeRow(v[y], quantizers, y);
    Transform2d</*kQuarter=*/false>(v);
    StoreSamples(v, pair, pitch);
  }
}

// --- upsampling ---------------------------------------------------------------------------------------------------
// Sixteen samples at a time. Writes beyond the end go to the row's margin.

// Makes the pixels left and right of the centres of sixteen samples: 3/4 of the sample and 1/4 of its neighbour,
// rounded by kEven and kOdd. Neighbours are shifted copies.
template <int kShift, int kEven, int kOdd>
JAXDALI_INLINE void Expand(__m256i left, __m256i center, __m256i right, uint8_t* pixels) {
  const __m256i three = _mm256_add_epi16(center, _mm256_add_epi16(center, center));
  const __m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(three, left), Set16(kEven)), kShift);
  const __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(three, right), Set16(kOdd)), kShift);
  StoreU(pixels, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
}

// Sixteen sums of two rows: 3/4 of the near one and 1/4 of the far one, times 4.
JAXDALI_INLINE __m256i Sum(const uint8_t* near, const uint8_t* far) {
  const __m256i n = Widen(near);
  return _mm256_add_epi16(_mm256_add_epi16(n, _mm256_add_epi16(n, n)), Widen(far));
}

// Upsamples samples [begin, end) of a row to twice as many pixels: 3/4 of each sample and 1/4 of its neighbour on the
// pixel's side.
void UpsampleH2V1(const uint8_t* row, int begin, int end, uint8_t* pixels) {
  for (int x = begin; x < end; x += 16)
    Expand</*kShift=*/2, /*kEven=*/1, /*kOdd=*/2>(Widen(row + x - 1), Widen(row + x), Widen(row + x + 1),
                                                  pixels + 2 * x);
}

// Upsamples samples [begin, end) to as many pixels of a row: 3/4 of the near row and 1/4 of the far one, which is the
// row below if `is_lower`.
void UpsampleH1V2(const uint8_t* near, const uint8_t* far, bool is_lower, int begin, int end, uint8_t* pixels) {
  const __m256i round = Set16(1 + is_lower);
  for (int x = begin; x < end; x += 16) {
    const __m256i v = _mm256_srli_epi16(_mm256_add_epi16(Sum(near + x, far + x), round), 2);
    // Packing works within each half of a register; 0xD8 puts the bytes of both halves side by side.
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + x), _mm256_castsi256_si128(bytes));
  }
}

// Upsamples samples [begin, end) to twice as many pixels of a row, in both directions. The sums of rows are computed
// first for a whole piece, because widening bytes and shifting them by one column would cost more.
void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels) {
  constexpr int kPiece = 512;
  alignas(32) uint16_t sums[kPiece + 48];  // of the piece and one column on each side: from column x - 1 on
  for (int x = begin; x < end; x += kPiece) {
    const int n = end - x < kPiece ? end - x : kPiece;
    for (int i = 0; i < n + 2; i += 16) StoreU(sums + i, Sum(near + x + i - 1, far + x + i - 1));
    for (int i = 0; i < n; i += 16)
      Expand</*kShift=*/4, /*kEven=*/8, /*kOdd=*/7>(LoadU(sums + i), LoadU(sums + i + 1), LoadU(sums + i + 2),
                                                    pixels + 2 * (x + i));
  }
}

// --- colours ------------------------------------------------------------------------------------------------------

struct Channels {
  __m256i r, g, b;
};

// Sixteen pixels. Luminance is 0 to 255, chroma -128 to 127.
JAXDALI_INLINE Channels YccToRgb(__m256i y, __m256i cb, __m256i cr) {
  // 1.402 and 1.772 as 2 - x: a rounding multiplication (by x, times 2^15) gives the same as color.h for each of the
  // 256 values. -19596 / 32768 = -0.598, -7471 / 32768 = -0.228.
  const __m256i red = _mm256_add_epi16(_mm256_add_epi16(cr, cr), _mm256_mulhrs_epi16(cr, Set16(-19596)));
  const __m256i blue = _mm256_add_epi16(_mm256_add_epi16(cb, cb), _mm256_mulhrs_epi16(cb, Set16(-7471)));
  // -22554 / 65536 = -0.344, -46802 / 65536 = -0.714. The latter does not fit into 16 bits: it is 18734 - 65536, and
  // the product with -65536 is subtracted at the end, as `cr`.
  const __m256i half = _mm256_set1_epi32(32768);
  const __m256i low = Madd(_mm256_unpacklo_epi16(cb, cr), -22554, 65536 - 46802);
  const __m256i high = Madd(_mm256_unpackhi_epi16(cb, cr), -22554, 65536 - 46802);
  const __m256i green = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                                           _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
  return {_mm256_add_epi16(y, red), _mm256_add_epi16(y, _mm256_sub_epi16(green, cr)), _mm256_add_epi16(y, blue)};
}

// Bytes kAt to kAt + 15 of sixteen pixels, as far as they belong to a channel. In each half the channel has eight even
// pixels, then eight odd ones.
template <int kAt, int kChannel>
JAXDALI_INLINE __m256i Pick(__m256i bytes) {
  struct Order {
    alignas(16) char source_byte[16];
    constexpr Order() : source_byte{} {
      for (int i = kAt; i < kAt + 16; i++)
        source_byte[i - kAt] = static_cast<char>(i % 3 == kChannel ? (i / 3 & 1) * 8 + i / 6 : 0x80);
    }
  };
  static constexpr Order kOrder;
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kOrder.source_byte));
  return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(order));
}
template <int kAt>
JAXDALI_INLINE __m256i Interleave(__m256i first, __m256i second, __m256i third) {
  return _mm256_or_si256(_mm256_or_si256(Pick<kAt, 0>(first), Pick<kAt, 1>(second)), Pick<kAt, 2>(third));
}

// Stores 32 pixels as 96 bytes. The lower halves of `thirds` hold the bytes of the first sixteen pixels, the upper
// halves those of the others: 0, 1 and 2 of the lower halves come before 0, 1 and 2 of the upper ones.
JAXDALI_INLINE void StorePixels(__m256i first, __m256i second, __m256i third, uint8_t* out) {
  const __m256i thirds[3] = {Interleave<0>(first, second, third), Interleave<16>(first, second, third),
                             Interleave<32>(first, second, third)};
  // 0x20: both lower halves; 0x30: the first one's lower and the second one's upper half; 0x31: both upper halves.
  StoreU(out, _mm256_permute2x128_si256(thirds[0], thirds[1], 0x20));
  StoreU(out + 32, _mm256_permute2x128_si256(thirds[2], thirds[0], 0x30));
  StoreU(out + 64, _mm256_permute2x128_si256(thirds[1], thirds[2], 0x31));
}

// Converts n pixels of three planes to RGB or BGR: 32 pixels, 96 bytes, at a time.
void ConvertYcc(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out) {
  const __m256i byte = Set16(255), middle = Set16(128);
  alignas(32) uint8_t last_pixels[96];  // of a row, whose pixels end within the 32
  for (int x = 0; x < n; x += 32) {
    // Even and odd bytes become two registers of 16-bit values. packus then puts eight even pixels before eight odd
    // ones in each half, which Pick takes into account.
    const __m256i y32 = LoadU(y + x), cb32 = LoadU(cb + x), cr32 = LoadU(cr + x);
    const Channels even = YccToRgb(_mm256_and_si256(y32, byte), _mm256_sub_epi16(_mm256_and_si256(cb32, byte), middle),
                                   _mm256_sub_epi16(_mm256_and_si256(cr32, byte), middle));
    const Channels odd = YccToRgb(_mm256_srli_epi16(y32, 8), _mm256_sub_epi16(_mm256_srli_epi16(cb32, 8), middle),
                                  _mm256_sub_epi16(_mm256_srli_epi16(cr32, 8), middle));
    const __m256i r = _mm256_packus_epi16(even.r, odd.r), g = _mm256_packus_epi16(even.g, odd.g),
                  b = _mm256_packus_epi16(even.b, odd.b);
    StorePixels(bgr ? b : r, g, bgr ? r : b, n - x >= 32 ? out + 3 * x : last_pixels);
    if (n - x < 32) std::memcpy(out + 3 * x, last_pixels, static_cast<size_t>(3 * (n - x)));
  }
}

}  // namespace

const Kernels kSimdKernels{DecodeBand<Simd>, DecodeScan<Simd>, TransformBand<Simd>, UpsampleH2V1,
                           UpsampleH1V2,     UpsampleH2V2,     ConvertYcc,          RequantizeBlocks};

}  // namespace jaxdali::jpeg

#endif  // defined(JAXDALI_VECTORS)
