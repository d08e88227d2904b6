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

// Weights as integers whose sum is -`one`. They are negated because int16 holds -1 in Q15 but not 1; with 32767 for 1,
// exact ties (frequent at simple ratios) would be rounded down.
JAXDALI_INLINE void Quantize(const float* w, int k, int one, int16_t* out) {
  int sum = 0, best = 0;
  float most = w[0];
  for (int j = 0; j < k; j++) {
    const float v = -w[j] * static_cast<float>(one);
    const int q = static_cast<int>(v + std::copysign(0.5f, v));
    out[j] = static_cast<int16_t>(std::max(q, -32768));
    sum += q;
    best = w[j] > most ? j : best;
    most = w[j] > most ? w[j] : most;
  }
  out[best] = static_cast<int16_t>(std::max(out[best] - one - sum, -32768));
}

template <int K>
void QuantizeSome(const float* w, int64_t n, int any, int one, int stride, int16_t* out) {
  const int k = K ? K : any;
  for (int64_t o = 0; o < n; o++, w += k, out += stride) Quantize(w, k, one, out);
}

// Quantizes the weights of n outputs, and stores the results `stride` apart.
void QuantizeAll(const float* w, int64_t n, int k, int one, int stride, int16_t* out) {
  const auto run = k == 2 ? QuantizeSome<2> : k == 3 ? QuantizeSome<3> : k == 4 ? QuantizeSome<4> : QuantizeSome<0>;
  run(w, n, k, one, stride, out);
}

// out[i] = -sum_j ((rows[j][i] << 7) * w[j] + 2^14) >> 15, saturated.
inline int16_t VerticalOne(const uint8_t* const* rows, const int16_t* w, int k, int64_t i) {
  int acc = 0;
  for (int j = 0; j < k; j++) acc -= ((rows[j][i] << 7) * w[j] + (1 << 14)) >> 15;
  return static_cast<int16_t>(std::min(std::max(acc, -32768), 32767));
}

// v / 2^shift, with halves rounded to even.
inline int32_t ShiftEven(int32_t v, int shift) { return (v + (1 << (shift - 1)) - 1 + (v >> shift & 1)) >> shift; }

inline uint8_t Clamp8(int v) { return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v); }

#if defined(JAXDALI_SIMD)
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
    __m256i a0 = _mm256_setzero_si256(), a1 = a0;
    for (int j = 0; j < k; j++) {
      const __m128i* p = reinterpret_cast<const __m128i*>(rows[j] + begin + x);
      __m256i c = _mm256_set1_epi16(w[j]);
      __m256i v0 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 7);
      __m256i v1 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p + 1)), 7);
      a0 = _mm256_subs_epi16(a0, _mm256_mulhrs_epi16(v0, c));
      a1 = _mm256_subs_epi16(a1, _mm256_mulhrs_epi16(v1, c));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), a0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x + 16), a1);
  }
}

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

JAXDALI_SIMD inline __m256i ShiftEven(__m256i v, __m256i below_half, __m128i shift) {
  const __m256i odd = _mm256_and_si256(_mm256_srl_epi32(v, shift), _mm256_set1_epi32(1));
  return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(v, below_half), odd), shift);
}

// The two outputs that one register works on, one in each lane: two taps of each, as 16-bit pairs per channel.
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

template <int C, int K>  // channels, 3 or 4; taps (even), 0: any number
JAXDALI_SIMD void HorizontalSimd(const int16_t* line, const int32_t* offset, const int16_t* w, int taps, int shift,
                                 int64_t n, uint8_t* dst) {
  const int k = K ? K : taps;
  const __m256i below_half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
  const __m128i bits = _mm_cvtsi32_si128(shift);
  const __m128i pack3 = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for (int64_t o = 0; o < n; o += 4, w += 4 * k) {
    const int16_t *p0 = line + offset[o], *p1 = line + offset[o + 1], *p2 = line + offset[o + 2],
                  *p3 = line + offset[o + 3];
    const int16_t *wa = w, *wb = w + 2 * k;
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int j = 0; j < k; j += 2) {
      a = _mm256_sub_epi32(a, _mm256_madd_epi16(TwoTaps<C>(p0 + j * C, p1 + j * C), TwoWeights(wa + 2 * j)));
      b = _mm256_sub_epi32(b, _mm256_madd_epi16(TwoTaps<C>(p2 + j * C, p3 + j * C), TwoWeights(wb + 2 * j)));
    }
    __m256i v =
        _mm256_packs_epi32(ShiftEven(a, below_half, bits), ShiftEven(b, below_half, bits));  // outputs 0 2 | 1 3
    v = _mm256_packus_epi16(v, v);
    __m128i r = _mm_unpacklo_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    if (C == 3) r = _mm_shuffle_epi8(r, pack3);
    if (o + (C == 3 ? 6 : 4) <= n) {  // a whole register fits before the row's end
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + o * C), r);
    } else {
      uint8_t last[16];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(last), r);
      memcpy(dst + o * C, last, static_cast<size_t>(std::min<int64_t>(4, n - o) * C));
    }
  }
}

JAXDALI_SIMD inline __m256i FourTaps(const int16_t* line, const int32_t* offset, int j) {
  auto load = [&](int i) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(line + offset[i] + j)); };
  __m128i a = _mm_unpacklo_epi64(load(0), load(1)), b = _mm_unpacklo_epi64(load(2), load(3));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

// One channel: 8 outputs at a time, 4 taps of 4 outputs in a register. The number of taps is a multiple of 4.
JAXDALI_SIMD void HorizontalGreySimd(const int16_t* line, const int32_t* offset, const int16_t* w, int k, int shift,
                                     int64_t n, uint8_t* dst) {
  const __m256i below_half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
  const __m128i bits = _mm_cvtsi32_si128(shift);
  for (int64_t o = 0; o < n; o += 8, w += 8 * k) {
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int j = 0; j < k; j += 4) {
      const __m256i* c = reinterpret_cast<const __m256i*>(w + 8 * j);
      a = _mm256_sub_epi32(a, _mm256_madd_epi16(FourTaps(line, offset + o, j), _mm256_loadu_si256(c)));
      b = _mm256_sub_epi32(b, _mm256_madd_epi16(FourTaps(line, offset + o + 4, j), _mm256_loadu_si256(c + 1)));
    }
    __m256i s =
        _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), _MM_SHUFFLE(3, 1, 2, 0));  // outputs 0 1 2 3 | 4 5 6 7
    s = ShiftEven(s, below_half, bits);
    __m128i r = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    int64_t v = _mm_cvtsi128_si64(_mm_packus_epi16(r, r));
    memcpy(dst + o, &v, static_cast<size_t>(std::min<int64_t>(8, n - o)));
  }
}

#endif  // defined(JAXDALI_SIMD)

// Without SIMD, with the same results. Weights are [n, k].
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

bool U8Resizer::Init(const Taps& y, const Taps& x, int channels) {
  bool negative = y.negative || x.negative;
  int limit = negative ? kMaxNegativeTaps : kMaxTaps;
  if (y.k > limit || x.k > limit || (channels != 1 && channels != 3 && channels != 4)) return false;
  if (x.hi > (1 << 28) / channels) return false;  // elements of a line are counted in int32
  int one = negative ? 1 << 14 : 1 << 15;
  channels_ = channels;
  shift_ = negative ? 6 + 14 : 7 + 15;
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

void U8Resizer::Row(int64_t y, const uint8_t* const* rows, uint8_t* dst) {
  const int16_t* wy = &wy_[y * ky_];
  int ky = ky_;  // without the zeros at the ends of a filter
  while (ky > 1 && wy[ky - 1] == 0) ky--;
  for (; ky > 1 && *wy == 0; ky--) wy++, rows++;
#if defined(JAXDALI_SIMD)
  if (kHasSimd) {
    (vertical_ ? vertical_ : Vertical)(rows, wy, ky, begin_, width_, line_.data());
    if (horizontal_) return horizontal_(line_.data(), group_offset_.data(), blocks_.data(), kx_, shift_, nx_, dst);
    auto run = [&](auto kernel) { kernel(line_.data(), offset_.data(), wx_.data(), kx_, shift_, nx_, dst); };
    if (channels_ == 1) return run(HorizontalGreySimd);
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
