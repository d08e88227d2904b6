// The fixed-point resize of bytes (class U8Resizer; resize_u8.h explains the number formats).
//
// Init quantizes the weights and chooses the kernels; Row makes one output row by two passes:
//
//   vertical     rows of bytes -> one line of int16      VerticalSimd, VerticalOne
//   horizontal   the line -> a row of bytes              HorizontalSimd (3 or 4 channels), HorizontalGreySimd (1),
//                                                        HorizontalPortable
//
// The functions named Simd are for AVX2 and NEON, with registers of 256 bits. On CPUs with AVX-512 VBMI,
// resize_u8_avx512_cpu.cc replaces them. All versions give the same bytes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ffi/common/simd.h"
#include "ffi/resize/resize_u8.h"

namespace jaxdali {
namespace {

// With more taps the rounding of 16-bit weights adds up to a mean error above ~0.03 levels.
constexpr int kMaxTaps = 64, kMaxNegativeTaps = 32;

// Stores the k weights w, whose sum is 1, as integers whose sum is -`one`. They are negated because int16 holds -1 in
// Q15 but not 1; with 32767 for 1, exact ties (frequent at simple ratios) would be rounded down.
JAXDALI_INLINE void Quantize(const float* w, int k, int one, int16_t* out) {
  int sum = 0, largest = 0;  // index of the largest weight
  float most = w[0];
  for (int j = 0; j < k; j++) {
    const float v = -w[j] * static_cast<float>(one);
    const int q = static_cast<int>(v + std::copysign(0.5f, v));
    out[j] = static_cast<int16_t>(std::max(q, -32768));
    sum += q;
    largest = w[j] > most ? j : largest;
    most = w[j] > most ? w[j] : most;
  }
  // The largest weight takes the rounding errors of all others.
  out[largest] = static_cast<int16_t>(std::max(out[largest] - one - sum, -32768));
}

// QuantizeAll for K taps, for loops of known length; 0: for `taps`.
template <int K>
void QuantizeSome(const float* w, int64_t n, int taps, int one, int stride, int16_t* out) {
  const int k = K ? K : taps;
  for (int64_t o = 0; o < n; o++, w += k, out += stride) Quantize(w, k, one, out);
}

// Quantizes the k weights of each of n outputs, and stores the results `stride` apart. `one`: the integer for 1.
void QuantizeAll(const float* w, int64_t n, int k, int one, int stride, int16_t* out) {
  const auto run = k == 2 ? QuantizeSome<2> : k == 3 ? QuantizeSome<3> : k == 4 ? QuantizeSome<4> : QuantizeSome<0>;
  run(w, n, k, one, stride, out);
}

// One element of the vertical pass: -sum_j ((rows[j][i] << 7) * w[j] + 2^14) >> 15, saturated to int16. The weights are
// negated, see Quantize. Each product is rounded by itself, as _mm256_mulhrs_epi16 does it.
inline int16_t VerticalOne(const uint8_t* const* rows, const int16_t* w, int k, int64_t i) {
  int acc = 0;
  for (int j = 0; j < k; j++) acc -= ((rows[j][i] << 7) * w[j] + (1 << 14)) >> 15;
  return static_cast<int16_t>(std::min(std::max(acc, -32768), 32767));
}

// v / 2^shift, with halves rounded to even.
inline int32_t ShiftEven(int32_t v, int shift) { return (v + (1 << (shift - 1)) - 1 + (v >> shift & 1)) >> shift; }

inline uint8_t Clamp8(int v) { return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v); }

#if defined(JAXDALI_SIMD)
// The vertical pass: out[i] is VerticalOne of element begin + i, for i < n. 32 elements at a time.
template <int K>  // taps; 0: any number
JAXDALI_SIMD void VerticalSimd(const uint8_t* const* rows, const int16_t* w, int taps, int64_t begin, int64_t n,
                               int16_t* out) {
  const int k = K ? K : taps;
  if (n < 32) {
    for (int64_t i = 0; i < n; i++) out[i] = VerticalOne(rows, w, k, begin + i);
    return;
  }
  for (int64_t i = 0; i < n; i += 32) {
    // The last block overlaps the one before, so that nothing outside the row is read.
    int64_t x = std::min(i, n - 32);
    __m256i sum0 = _mm256_setzero_si256(), sum1 = sum0;  // 16 elements each
    for (int j = 0; j < k; j++) {
      const __m128i* p = reinterpret_cast<const __m128i*>(rows[j] + begin + x);
      __m256i weight = _mm256_set1_epi16(w[j]);
      __m256i v0 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 7);
      __m256i v1 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p + 1)), 7);
      sum0 = _mm256_subs_epi16(sum0, _mm256_mulhrs_epi16(v0, weight));
      sum1 = _mm256_subs_epi16(sum1, _mm256_mulhrs_epi16(v1, weight));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), sum0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x + 16), sum1);
  }
}

// VerticalSimd for k taps. Up to six have loops of known length.
JAXDALI_SIMD void Vertical(const uint8_t* const* rows, const int16_t* w, int k, int64_t begin, int64_t n,
                           int16_t* out) {
  switch (k) {
    case 1:
      return VerticalSimd<1>(rows, w, k, begin, n, out);
    case 2:
      return VerticalSimd<2>(rows, w, k, begin, n, out);
    case 3:
      return VerticalSimd<3>(rows, w, k, begin, n, out);
    case 4:
      return VerticalSimd<4>(rows, w, k, begin, n, out);
    case 5:
      return VerticalSimd<5>(rows, w, k, begin, n, out);
    case 6:
      return VerticalSimd<6>(rows, w, k, begin, n, out);
    default:
      return VerticalSimd<0>(rows, w, k, begin, n, out);
  }
}

// ShiftEven for eight values; below_half is 2^(shift - 1) - 1.
JAXDALI_SIMD inline __m256i ShiftEven(__m256i v, __m256i below_half, __m128i shift) {
  const __m256i odd = _mm256_and_si256(_mm256_srl_epi32(v, shift), _mm256_set1_epi32(1));
  return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(v, below_half), odd), shift);
}

// The taps of two outputs, one in each lane of 128 bits: two taps of each output, at `a` and at `b`, as 16-bit pairs of
// each channel (r0 r1 g0 g1 b0 b1). Multiplied by the pairs of TwoWeights, a pair gives one sum of 32 bits.
template <int C>
JAXDALI_SIMD inline __m256i TwoTaps(const int16_t* a, const int16_t* b) {
  const __m256i pairs = C == 3 ? _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1,  //
                                                  0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1)
                               : _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                                                  0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a)),
          y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(x), y, 1), pairs);
}

// Weights: 4 x int16 for two outputs and two taps (a0 a1 b0 b1) -> a0 a1 in the low lane, b0 b1 in the high one.
JAXDALI_SIMD inline __m256i TwoWeights(const int16_t* w) {
  const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                          4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  int64_t v;
  memcpy(&v, w, 8);
  return _mm256_shuffle_epi8(_mm256_set1_epi64x(v), spread);
}

// The horizontal pass for 3 or 4 channels: four outputs at a time, from two registers of sums with two outputs each.
// offset[o]: the first tap of output o in the line. Weights are in the order of U8Resizer::Init: two outputs together.
template <int C, int K>  // channels; taps (even), 0: any number
JAXDALI_SIMD void HorizontalSimd(const int16_t* line, const int32_t* offset, const int16_t* w, int taps, int shift,
                                 int64_t n, uint8_t* dst) {
  const int k = K ? K : taps;
  const __m256i below_half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
  const __m128i bits = _mm_cvtsi32_si128(shift);
  const __m128i pack3 = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for (int64_t o = 0; o < n; o += 4, w += 4 * k) {
    const int16_t *taps0 = line + offset[o], *taps1 = line + offset[o + 1], *taps2 = line + offset[o + 2],
                  *taps3 = line + offset[o + 3];
    const int16_t *weights01 = w, *weights23 = w + 2 * k;
    __m256i sum01 = _mm256_setzero_si256(), sum23 = sum01;
    for (int j = 0; j < k; j += 2) {
      sum01 = _mm256_sub_epi32(
          sum01, _mm256_madd_epi16(TwoTaps<C>(taps0 + j * C, taps1 + j * C), TwoWeights(weights01 + 2 * j)));
      sum23 = _mm256_sub_epi32(
          sum23, _mm256_madd_epi16(TwoTaps<C>(taps2 + j * C, taps3 + j * C), TwoWeights(weights23 + 2 * j)));
    }
    __m256i bytes = _mm256_packs_epi32(ShiftEven(sum01, below_half, bits),
                                       ShiftEven(sum23, below_half, bits));  // outputs 0 2 | 1 3
    bytes = _mm256_packus_epi16(bytes, bytes);
    __m128i pixels = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    if (C == 3) pixels = _mm_shuffle_epi8(pixels, pack3);  // drops the unused fourth byte of each pixel
    if (o + (C == 3 ? 6 : 4) <= n) {                       // a whole register fits before the row's end
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + o * C), pixels);
    } else {
      uint8_t last[16];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(last), pixels);
      memcpy(dst + o * C, last, static_cast<size_t>(std::min<int64_t>(4, n - o) * C));
    }
  }
}

// Four taps, from tap j on, of four outputs of one channel: outputs 0 and 1 in the low lane, 2 and 3 in the high one.
JAXDALI_SIMD inline __m256i FourTaps(const int16_t* line, const int32_t* offset, int j) {
  auto load = [&](int i) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(line + offset[i] + j)); };
  __m128i a = _mm_unpacklo_epi64(load(0), load(1)), b = _mm_unpacklo_epi64(load(2), load(3));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

// The horizontal pass for one channel: 8 outputs at a time, 4 taps of 4 outputs in a register. The number of taps is a
// multiple of 4. Weights are in the order of U8Resizer::Init: four taps of each of eight outputs together.
JAXDALI_SIMD void HorizontalGreySimd(const int16_t* line, const int32_t* offset, const int16_t* weights, int taps,
                                     int shift, int64_t n, uint8_t* dst) {
  const __m256i below_half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
  const __m128i bits = _mm_cvtsi32_si128(shift);
  for (int64_t o = 0; o < n; o += 8, weights += 8 * taps) {
    // An output has two sums of 32 bits, of its even and its odd pairs of taps. Weights are negated, see Quantize.
    __m256i low = _mm256_setzero_si256(), high = low;  // outputs 0 to 3, outputs 4 to 7
    for (int j = 0; j < taps; j += 4) {
      const __m256i* four = reinterpret_cast<const __m256i*>(weights + 8 * j);
      low = _mm256_sub_epi32(low, _mm256_madd_epi16(FourTaps(line, offset + o, j), _mm256_loadu_si256(four)));
      high = _mm256_sub_epi32(high, _mm256_madd_epi16(FourTaps(line, offset + o + 4, j), _mm256_loadu_si256(four + 1)));
    }
    // hadd joins the two sums, but within lanes: outputs 0 1 4 5 | 2 3 6 7. The permutation puts them in order.
    __m256i sums =
        _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));  // outputs 0 1 2 3 | 4 5 6 7
    sums = ShiftEven(sums, below_half, bits);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    memcpy(dst + o, &bytes, static_cast<size_t>(std::min<int64_t>(8, n - o)));
  }
}

#endif  // defined(JAXDALI_SIMD)

// The horizontal pass without vectors, with the same results. Weights are [n, k].
template <int C>
void HorizontalPortable(const int16_t* line, const int32_t* offset, const int16_t* w, int k, int shift, int64_t n,
                        uint8_t* dst) {
  for (int64_t o = 0; o < n; o++, w += k) {
    const int16_t* p = line + offset[o];
    int32_t acc[C] = {};
    for (int j = 0; j < k; j++)
      for (int c = 0; c < C; c++) acc[c] -= p[j * C + c] * w[j];
    for (int c = 0; c < C; c++) dst[o * C + c] = Clamp8(ShiftEven(acc[c], shift));
  }
}

}  // namespace

// Prepares the resize of an image by these taps. False: it needs the float path.
bool U8Resizer::Init(const Taps& y, const Taps& x, int channels) {
  // Fixed-point formats of the two kinds of filters, and so `one` and shift_: see the class.
  bool negative = y.negative || x.negative;
  int limit = negative ? kMaxNegativeTaps : kMaxTaps;
  if (y.k > limit || x.k > limit || (channels != 1 && channels != 3 && channels != 4)) return false;
  if (x.hi > (1 << 28) / channels) return false;  // elements of a line are counted in int32
  int one = negative ? 1 << 14 : 1 << 15;
  channels_ = channels;
  shift_ = negative ? 6 + 14 : 7 + 15;  // bits after the point of a horizontal sum
  ky_ = y.k;
  nx_ = x.n;
  begin_ = int64_t{x.lo} * channels;
  width_ = int64_t{x.hi - x.lo} * channels;

  wy_.resize(static_cast<size_t>(y.n) * ky_);
  QuantizeAll(y.weight.data(), y.n, y.k, one, ky_, wy_.data());

  // Taps are padded with weight 0 to the number that the horizontal kernels take at a time. AVX2's kernels read the
  // weights of some outputs together.
  const int step = !kHasSimd ? 1 : channels == 1 ? 4 : 2, group = !kHasSimd ? 1 : channels == 1 ? 8 : 2;
  kx_ = (x.k + step - 1) / step * step;
  const int64_t padded = (x.n + 7) / 8 * 8 + resize_u8::kWidePadding;
  wx_.assign(static_cast<size_t>(padded) * kx_, 0);
  QuantizeAll(x.weight.data(), x.n, x.k, one, kx_, wx_.data());
  offset_.resize(static_cast<size_t>(padded));
  for (int64_t o = 0; o < x.n; o++) offset_[o] = (x.first[o] - x.lo) * channels;
  std::fill(offset_.begin() + x.n, offset_.end(), x.n ? offset_[x.n - 1] : 0);
  // Padded taps are read: up to 3 pixels, and the rest of a register.
  line_.assign(static_cast<size_t>(width_ + 4 * channels + resize_u8::kWideMargin), 0);
  vertical_ = nullptr;
  horizontal_ = nullptr;
#if defined(__x86_64__)
  if (kHasSimd) {
    if (width_ >= resize_u8::kWideBytes) vertical_ = resize_u8::MakeWideVertical();
    horizontal_ =
        resize_u8::MakeWideHorizontal(channels, x.n, offset_.data(), wx_.data(), kx_, &group_offset_, &blocks_);
  }
#endif
  // Brings the weights of `group` outputs together: `step` taps of each output, then the next taps of each, and so on.
  if (group > 1 && !horizontal_) {
    std::vector<int16_t> w(static_cast<size_t>(group) * kx_);
    for (int64_t o = 0; o < x.n; o += group) {
      int16_t* base = &wx_[o * kx_];
      memcpy(w.data(), base, w.size() * sizeof *base);
      for (int i = 0; i < group; i++)
        for (int j = 0; j < kx_; j += step) memcpy(base + j * group + i * step, &w[i * kx_ + j], step * sizeof *base);
    }
  }
  return true;
}

// Makes output row y at `dst`, from the source rows of its vertical taps.
void U8Resizer::Row(int64_t y, const uint8_t* const* rows, uint8_t* dst) {
  const int16_t* wy = &wy_[y * ky_];
  int ky = ky_;  // number of taps without the zeros at the ends of the filter
  while (ky > 1 && wy[ky - 1] == 0) ky--;
  for (; ky > 1 && *wy == 0; ky--) wy++, rows++;
#if defined(JAXDALI_SIMD)
  if (kHasSimd) {
    (vertical_ ? vertical_ : Vertical)(rows, wy, ky, begin_, width_, line_.data());
    if (horizontal_) return horizontal_(line_.data(), group_offset_.data(), blocks_.data(), kx_, shift_, nx_, dst);
    auto run = [&](auto kernel) { kernel(line_.data(), offset_.data(), wx_.data(), kx_, shift_, nx_, dst); };
    if (channels_ == 1) return run(HorizontalGreySimd);
    // Linear, cubic and Lanczos filters have 2, 4 and 6 taps where an image is enlarged: loops of known length.
    if (channels_ == 4)
      return run(kx_ == 2 ? HorizontalSimd<4, 2> : kx_ == 4 ? HorizontalSimd<4, 4> : HorizontalSimd<4, 0>);
    return run(kx_ == 2   ? HorizontalSimd<3, 2>
               : kx_ == 4 ? HorizontalSimd<3, 4>
               : kx_ == 6 ? HorizontalSimd<3, 6>
                          : HorizontalSimd<3, 0>);
  }
#endif
  for (int64_t i = 0; i < width_; i++) line_[i] = VerticalOne(rows, wy, ky, begin_ + i);
  auto kernel = channels_ == 1 ? HorizontalPortable<1> : channels_ == 3 ? HorizontalPortable<3> : HorizontalPortable<4>;
  kernel(line_.data(), offset_.data(), wx_.data(), kx_, shift_, nx_, dst);
}

}  // namespace jaxdali
