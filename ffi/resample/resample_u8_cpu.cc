// Passes over bytes for any CPU, and with AVX2 or NEON; see resample_u8.h.
//
// Vectors multiply numbers of 16 bits. A weight has up to 30 bits, so it is cut into a lower part of 15 bits and a
// higher one, and each has a sum of its own. Sums may exceed 32 bits in between; their last 32 bits are right.
#include <algorithm>
#include <cstring>

#include "ffi/common/simd.h"
#include "ffi/common/triple.h"
#include "ffi/resample/resample_u8.h"

namespace jaxdali {
namespace {

using resample_u8::kBits;
using resample_u8::kTogether;
using resample_u8::Taps;

constexpr int32_t kHalf = 1 << (kBits - 1);  // for rounding
constexpr int kLowBits = 15;                 // of the lower part of a weight

inline uint8_t Finish(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

// The vertical pass for bytes begin ... n - 1 of a row.
void VerticalPortable(const uint8_t* const* rows, const int32_t* weight, int count, int64_t begin, int64_t n,
                      uint8_t* out) {
  for (int64_t i = begin; i < n; i++) {
    int32_t sum = kHalf;
    for (int j = 0; j < count; j++) sum += weight[j] * rows[j][i];
    out[i] = Finish(sum);
  }
}

template <int C>
void HorizontalPortable(const uint8_t* row, const Taps& x, uint8_t* out) {
  const int32_t* weight = x.weight;
  for (int64_t o = 0; o < x.n; o++, weight += x.k, out += C) {
    const uint8_t* p = row + int64_t{x.first[o]} * C;
    int32_t sum[C];
    for (int32_t& s : sum) s = kHalf;
    for (int j = 0; j < x.count[o]; j++, p += C)
      for (int c = 0; c < C; c++) sum[c] += weight[j] * p[c];
    for (int c = 0; c < C; c++) out[c] = Finish(sum[c]);
  }
}

#if defined(JAXDALI_SIMD)

JAXDALI_SIMD JAXDALI_INLINE __m256i Load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// The sum of eight outputs from the sums of the lower and the higher parts of weights, before it is limited to a byte.
JAXDALI_SIMD JAXDALI_INLINE __m256i Joined(__m256i low, __m256i high) {
  return _mm256_srai_epi32(_mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits)), kBits);
}

// Two weights of 16 bits, which stand side by side, for all pairs of a register.
JAXDALI_SIMD JAXDALI_INLINE __m256i Pair(const int16_t* w) {
  int32_t both;
  memcpy(&both, w, sizeof both);
  return _mm256_set1_epi32(both);
}

// The vertical pass for n >= 32 bytes, 32 at a time. `halves`: for each two rows, the lower parts of their weights,
// then the higher ones. The last block overlaps the one before, so that nothing outside the rows is read.
JAXDALI_SIMD void VerticalSimd(const uint8_t* const* rows, const int16_t* halves, int taps, int64_t n, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t begin = 0; begin < n; begin += 32) {
    const int64_t i = std::min(begin, n - 32);
    __m256i low[4], high[4];
    for (int b = 0; b < 4; b++) low[b] = _mm256_set1_epi32(kHalf), high[b] = zero;
    for (int j = 0; j < taps; j += 2) {
      const __m256i one = Load(rows[j] + i), two = Load(rows[j + 1] + i);
      const __m256i left = _mm256_unpacklo_epi8(one, two), right = _mm256_unpackhi_epi8(one, two);
      const __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
      const __m256i low_weights = Pair(halves + 2 * j), high_weights = Pair(halves + 2 * j + 2);
      for (int b = 0; b < 4; b++) {
        low[b] = _mm256_add_epi32(low[b], _mm256_madd_epi16(pairs[b], low_weights));
        high[b] = _mm256_add_epi32(high[b], _mm256_madd_epi16(pairs[b], high_weights));
      }
    }
    // Packing undoes the order of the unpacked bytes.
    const __m256i left = _mm256_packs_epi32(Joined(low[0], high[0]), Joined(low[1], high[1])),
                  right = _mm256_packs_epi32(Joined(low[2], high[2]), Joined(low[3], high[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_packus_epi16(left, right));
  }
}

// Weights: 4 x int16 for two outputs and two taps (a0 a1 b0 b1) -> a0 a1 in the low lane, b0 b1 in the high one.
JAXDALI_SIMD JAXDALI_INLINE __m256i TwoWeights(const int16_t* w) {
  const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                          4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  int64_t v;
  memcpy(&v, w, sizeof v);
  return _mm256_shuffle_epi8(_mm256_set1_epi64x(v), spread);
}

// The horizontal pass for 3 or 4 channels: two outputs at a time, one in each lane of 128 bits, from four taps at a
// time. `halves`: for each two outputs and four taps, the lower parts of the weights of taps 0 and 1 of both outputs,
// those of taps 2 and 3, then the higher parts in the same order.
template <int C>
JAXDALI_SIMD void HorizontalSimd(const uint8_t* row, const Taps& x, const int16_t* halves, int taps, uint8_t* out) {
  // Two taps as 16-bit pairs of each channel: r0 r1 g0 g1 b0 b1.
  const __m256i taps01 = C == 3 ? _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                                   0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1)
                                : _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,  //
                                                   0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
  const __m256i taps23 = C == 3 ? _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1,  //
                                                   6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1)
                                : _mm256_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1,  //
                                                   8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
  for (int64_t o = 0; o < x.n; o += 2) {
    const uint8_t* p = row + int64_t{x.first[o]} * C;
    const uint8_t* q = row + int64_t{x.first[std::min(o + 1, x.n - 1)]} * C;
    __m256i low = _mm256_set1_epi32(kHalf), high = _mm256_setzero_si256();
    for (int j = 0; j < taps; j += kTogether, p += kTogether * C, q += kTogether * C, halves += 16) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                    b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
      const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
      const __m256i first = _mm256_shuffle_epi8(both, taps01), second = _mm256_shuffle_epi8(both, taps23);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(first, TwoWeights(halves)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(second, TwoWeights(halves + 4)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(first, TwoWeights(halves + 8)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(second, TwoWeights(halves + 12)));
    }
    __m256i bytes = _mm256_packs_epi32(Joined(low, high), Joined(low, high));
    bytes = _mm256_packus_epi16(bytes, bytes);
    const int32_t pixels[2] = {_mm_cvtsi128_si32(_mm256_castsi256_si128(bytes)),
                               _mm_cvtsi128_si32(_mm256_extracti128_si256(bytes, 1))};
    if (o + 3 <= x.n) {  // the fourth byte of a pixel lies inside of the row, and the next pixel overwrites it
      memcpy(out + o * C, &pixels[0], 4);
      memcpy(out + (o + 1) * C, &pixels[1], 4);
    } else {
      memcpy(out + o * C, &pixels[0], C);
      if (o + 1 < x.n) memcpy(out + (o + 1) * C, &pixels[1], C);
    }
  }
}

#endif  // defined(JAXDALI_SIMD)

// The lower and the higher part of the weight of tap j of output o; 0 where there is none.
int16_t LowPart(const Taps& t, int64_t o, int j) {
  return static_cast<int16_t>(o < t.n && j < t.k ? t.weight[o * t.k + j] & ((1 << kLowBits) - 1) : 0);
}
int16_t HighPart(const Taps& t, int64_t o, int j) {
  return static_cast<int16_t>(o < t.n && j < t.k ? t.weight[o * t.k + j] >> kLowBits : 0);
}

int RoundedUp(int n, int step) { return (n + step - 1) / step * step; }

}  // namespace

bool U8Resampler::Init(const Taps& y, const Taps& x, int channels, bool vertical_first) {
  if (channels != 1 && channels != 3 && channels != 4) return false;
  y_ = y;
  x_ = x;
  channels_ = channels;
  vertical_first_ = vertical_first;
  taps_y_ = RoundedUp(*std::max_element(y.count, y.count + y.n), kTogether);
  taps_x_ = RoundedUp(*std::max_element(x.count, x.count + x.n), kTogether);
  rows_.resize(static_cast<size_t>(taps_y_));
  same_columns_ = x.k == 1;
  for (int64_t o = 0; o < x.n && same_columns_; o++)
    same_columns_ = x.first[o] == x.first[0] + o && x.weight[o] == 1 << kBits;
  vertical_ = nullptr;
  horizontal_ = nullptr;
#if defined(__x86_64__)
  vertical_ = resample_u8::MakeWideVertical(y, taps_y_, &digits_);
  if (!same_columns_) horizontal_ = resample_u8::MakeWideHorizontal(x, channels, taps_x_, &group_first_, &blocks_);
#endif
#if defined(JAXDALI_SIMD)
  if (!kHasSimd) return true;
  halves_y_.clear();
  halves_x_.clear();
  for (int64_t o = 0; o < y.n && !vertical_; o++)
    for (int j = 0; j < taps_y_; j += 2)
      halves_y_.insert(halves_y_.end(),
                       {LowPart(y, o, j), LowPart(y, o, j + 1), HighPart(y, o, j), HighPart(y, o, j + 1)});
  if (horizontal_ || same_columns_ || channels == 1) return true;
  for (int64_t o = 0; o < x.n; o += 2)
    for (int j = 0; j < taps_x_; j += kTogether)
      for (const auto part : {LowPart, HighPart})
        for (int pair = j; pair < j + kTogether; pair += 2)
          halves_x_.insert(halves_x_.end(),
                           {part(x, o, pair), part(x, o, pair + 1), part(x, o + 1, pair), part(x, o + 1, pair + 1)});
#endif
  return true;
}

void U8Resampler::Horizontal(const uint8_t* row, uint8_t* out) const {
  if (same_columns_) {
    memcpy(out, row + int64_t{x_.first[0]} * channels_, static_cast<size_t>(x_.n * channels_));
    return;
  }
  if (horizontal_) return horizontal_(row, group_first_.data(), blocks_.data(), taps_x_, x_.n, out);
#if defined(JAXDALI_SIMD)
  if (kHasSimd && channels_ > 1)
    return (channels_ == 3 ? HorizontalSimd<3> : HorizontalSimd<4>)(row, x_, halves_x_.data(), taps_x_, out);
#endif
  (channels_ == 1   ? HorizontalPortable<1>
   : channels_ == 3 ? HorizontalPortable<3>
                    : HorizontalPortable<4>)(row, x_, out);
}

void U8Resampler::Vertical(const uint8_t* const* rows, int64_t o, int64_t n, uint8_t* out) {
  const int count = y_.count[o];
  const int32_t* weight = y_.weight + o * y_.k;
  if (count == 1 && *weight == 1 << kBits) {
    memcpy(out, rows[0], static_cast<size_t>(n));
    return;
  }
  // Taps with the weight 0, up to the number that vectors take, read any row.
  const int taps = RoundedUp(count, kTogether);
  for (int j = 0; j < taps; j++) rows_[j] = rows[std::min(j, count - 1)];
  if (vertical_ && n >= resample_u8::kWideBytes)
    return vertical_(rows_.data(), digits_.data() + o * taps_y_ / kTogether * 3, taps, n, out);
#if defined(JAXDALI_SIMD)
  if (kHasSimd && !vertical_ && n >= 32)
    return VerticalSimd(rows_.data(), halves_y_.data() + o * taps_y_ * 2, taps, n, out);
#endif
  VerticalPortable(rows, weight, count, /*begin=*/0, n, out);
}

void U8Resampler::RunOnImage(const uint8_t* in, int64_t row_size, int64_t rows, uint8_t* out) {
  const int64_t out_row = x_.n * channels_, behind = ReadBehind();
  std::vector<const uint8_t*> window(static_cast<size_t>(y_.k));
  // A row with memory behind it, and a ring of resized rows, in which any y.k neighbouring rows have different slots.
  uint8_t* line = static_cast<uint8_t*>(memory_.OfSize(row_size + behind + y_.k * out_row));
  uint8_t* ring = line + row_size + behind;
  if (vertical_first_) {
    for (int64_t o = 0; o < y_.n; o++) {
      for (int j = 0; j < y_.count[o]; j++) window[j] = in + (y_.first[o] + j) * row_size;
      Vertical(window.data(), o, row_size, line);
      Horizontal(line, out + o * out_row);
    }
    return;
  }
  std::vector<int64_t> ring_rows(static_cast<size_t>(y_.k), -1);  // the source row in each slot
  for (int64_t o = 0; o < y_.n; o++) {
    for (int j = 0; j < y_.count[o]; j++) {
      const int64_t source = y_.first[o] + j, slot = source % y_.k;
      uint8_t* resized = ring + slot * out_row;
      window[j] = resized;
      if (ring_rows[slot] == source) continue;
      ring_rows[slot] = source;
      const uint8_t* row = in + source * row_size;
      // Vectors would read behind the image.
      if ((rows - source - 1) * row_size < behind) row = static_cast<uint8_t*>(memcpy(line, row, row_size));
      Horizontal(row, resized);
    }
    Vertical(window.data(), o, out_row, out + o * out_row);
  }
}

bool U8Resampler::RunOnRows(const std::function<bool(uint8_t*)>& next, int64_t row_size, int64_t rows, bool triple,
                            uint8_t* out) {
  const int64_t out_row = x_.n * channels_, behind = ReadBehind();
  const int64_t ring_row = vertical_first_ ? row_size : out_row;  // bytes of a row between the passes
  std::vector<const uint8_t*> window(static_cast<size_t>(y_.k));
  uint8_t* line = static_cast<uint8_t*>(memory_.OfSize(row_size + behind + y_.k * ring_row + out_row));
  uint8_t *ring = line + row_size + behind, *result = ring + y_.k * ring_row;
  int64_t received = 0;                      // rows
  const auto receive = [&](int64_t count) {  // until there are so many; false: a row is missing
    for (; received < count; received++) {
      uint8_t* slot = ring + received % y_.k * ring_row;
      if (!next(vertical_first_ ? slot : line)) return false;
      if (!vertical_first_) Horizontal(line, slot);
    }
    return true;
  };
  for (int64_t o = 0; o < y_.n; o++, out += triple ? 3 * out_row : out_row) {
    const int64_t first = y_.first[o];
    // The ring has no older rows than these.
    if (!receive(first + y_.count[o]) || received > first + y_.k) return false;
    for (int j = 0; j < y_.count[o]; j++) window[j] = ring + (first + j) % y_.k * ring_row;
    uint8_t* to = triple ? result : out;
    Vertical(window.data(), o, ring_row, vertical_first_ ? line : to);
    if (vertical_first_) Horizontal(line, to);
    if (triple) Triple(result, out_row, out);
  }
  // Also rows that no output depends on, which may be damaged.
  for (; received < rows; received++)
    if (!next(line)) return false;
  return true;
}

}  // namespace jaxdali
