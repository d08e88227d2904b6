// Row by row: chroma is upsampled into 16-bit working rows, then pixels are computed. The same source runs on any CPU
// and, marked JAXDALI_SIMD, with AVX2; only the pixels have intrinsics (ConvertPixelsSimd, x86-64).
#include "ffi/video/yuv.h"

#include <algorithm>
#include <vector>

#include "ffi/common/simd.h"

namespace jaxdali {
namespace {

// Samples with 10 bits have two more bits, which the shift at the end removes.
template <typename Sample>
constexpr int kExtraBits = sizeof(Sample) == 1 ? 0 : 2;
// Factors have 13 fractional bits and chroma has 4.
template <typename Sample>
constexpr int kShift = 17 + kExtraBits<Sample>;

// Working memory for a row. Chroma is in units of 1/16 of a sample's, with the middle of its range subtracted. `blend`
// is the vertical interpolation of the chroma, in units of 1/4.
struct Row {
  int16_t *blend, *u, *v;
};

// A sample as a number. Values above 10 bits, which no decoder gives, would overflow below.
JAXDALI_INLINE int ToNumber(uint8_t x) { return x; }
JAXDALI_INLINE int ToNumber(uint16_t x) { return std::min<int>(x, 1023); }

// Chroma of one row, in `out` with a value for each pixel: three parts of the near row and one of the far one (the same
// row where it is not subsampled), then the same along the row. `blend`: working memory.
template <typename Sample>
JAXDALI_INLINE void Chroma(const Sample* near, const Sample* far, int64_t width, bool half_width, int16_t* blend,
                           int16_t* out) {
  constexpr int kMiddle = 2048 << kExtraBits<Sample>;
  const int64_t n = half_width ? (width + 1) / 2 : width;
  for (int64_t x = 0; x < n; x++) blend[x] = static_cast<int16_t>(3 * ToNumber(near[x]) + ToNumber(far[x]));
  if (!half_width) {
    for (int64_t x = 0; x < n; x++) out[x] = static_cast<int16_t>(4 * blend[x] - kMiddle);
    return;
  }
  out[0] = static_cast<int16_t>(4 * blend[0] - kMiddle);
  for (int64_t x = 0; x + 1 < n; x++) {
    const int a = blend[x], b = blend[x + 1];
    out[2 * x + 1] = static_cast<int16_t>(3 * a + b - kMiddle);
    out[2 * x + 2] = static_cast<int16_t>(a + 3 * b - kMiddle);
  }
  out[2 * n - 1] = static_cast<int16_t>(4 * blend[n - 1] - kMiddle);
}

JAXDALI_INLINE uint8_t Clip(int x) { return static_cast<uint8_t>(std::min(std::max(x, 0), 255)); }

// Computes the pixels of a row from the `begin`-th on. Luma is multiplied by 16, the unit of the chroma.
template <typename Sample>
JAXDALI_INLINE void ConvertPixels(const Sample* y, const Row& row, int64_t begin, int64_t width, const YuvFactors& f,
                                  uint8_t* rgb) {
  constexpr int kBits = kShift<Sample>;
  for (int64_t x = begin; x < width; x++) {
    const int grey = 16 * (ToNumber(y[x]) - f.black) * f.luma + (1 << (kBits - 1));
    rgb[3 * x] = Clip((grey + row.v[x] * f.red_v) >> kBits);
    rgb[3 * x + 1] = Clip((grey + row.u[x] * f.green_u + row.v[x] * f.green_v) >> kBits);
    rgb[3 * x + 2] = Clip((grey + row.u[x] * f.blue_u) >> kBits);
  }
}

// The two steps of a row: its chroma, and its first pixels. The latter returns how many it has made; ConvertPixels
// makes the others.
template <typename Sample>
struct Steps {
  void (*chroma)(const Sample* near, const Sample* far, int64_t width, bool half_width, int16_t* blend, int16_t* out);
  int64_t (*pixels)(const Sample* y, const Row& row, int64_t width, const YuvFactors& f, uint8_t* rgb);
};

template <typename Sample>
void ChromaPortable(const Sample* near, const Sample* far, int64_t width, bool half_width, int16_t* blend,
                    int16_t* out) {
  Chroma(near, far, width, half_width, blend, out);
}
template <typename Sample>
int64_t NoPixels(const Sample*, const Row&, int64_t, const YuvFactors&, uint8_t*) {
  return 0;
}
template <typename Sample>
constexpr Steps<Sample> kPortable = {ChromaPortable<Sample>, NoPixels<Sample>};

// Converts a frame row by row. Chroma of half the height lies between two rows of luma: the near row of chroma is the
// one that belongs to y / 2, the far one is below it for odd y and above it for even y.
template <typename Sample>
void Convert(const YuvFrame<Sample>& frame, const Row& row, uint8_t* rgb, const Steps<Sample>& steps) {
  const int64_t rows = frame.half_height ? (frame.height + 1) / 2 : frame.height;
  for (int64_t y = 0; y < frame.height; y++) {
    const int64_t near = frame.half_height ? y / 2 : y;
    const int64_t far = frame.half_height ? std::clamp<int64_t>(y % 2 ? near + 1 : near - 1, 0, rows - 1) : near;
    steps.chroma(frame.u.row(near), frame.u.row(far), frame.width, frame.half_width, row.blend, row.u);
    steps.chroma(frame.v.row(near), frame.v.row(far), frame.width, frame.half_width, row.blend, row.v);
    uint8_t* rgb_row = rgb + 3 * y * frame.width;
    const int64_t num_done = steps.pixels(frame.y.row(y), row, frame.width, frame.factors, rgb_row);
    ConvertPixels(frame.y.row(y), row, num_done, frame.width, frame.factors, rgb_row);
  }
}

#if defined(__x86_64__)

// Moves 16 values of colour kColour to their bytes in part kPart of 16 RGB pixels (48 bytes in three parts); other
// bytes are zero.
template <int kPart, int kColour>
JAXDALI_SIMD JAXDALI_INLINE __m128i PlaceColour(__m128i x) {
  struct Order {
    alignas(16) char source[16];
    constexpr Order() : source{} {
      for (int k = 0; k < 16; k++) {
        const int byte = 16 * kPart + k;
        source[k] = static_cast<char>(byte % 3 == kColour ? byte / 3 : 0x80);
      }
    }
  };
  static constexpr Order kOrder;
  return _mm_shuffle_epi8(x, _mm_load_si128(reinterpret_cast<const __m128i*>(kOrder.source)));
}

// Stores part kPart, 16 bytes, of 16 RGB pixels.
template <int kPart>
JAXDALI_SIMD JAXDALI_INLINE void StorePart(__m128i r, __m128i g, __m128i b, uint8_t* to) {
  const __m128i bytes =
      _mm_or_si128(_mm_or_si128(PlaceColour<kPart, 0>(r), PlaceColour<kPart, 1>(g)), PlaceColour<kPart, 2>(b));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * kPart), bytes);
}

// Two factors for _mm256_madd_epi16: `a` for the lower value of each pair.
JAXDALI_SIMD JAXDALI_INLINE __m256i SetPair(int a, int b) {
  return _mm256_set1_epi32(static_cast<int>((static_cast<uint32_t>(b) << 16) | (static_cast<uint32_t>(a) & 0xffff)));
}

// Shifts the sums of 16 pixels by kBits and packs them to bytes, with saturation.
template <int kBits>
JAXDALI_SIMD JAXDALI_INLINE __m128i RoundToBytes(__m256i low, __m256i high) {
  const __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, kBits), _mm256_srai_epi32(high, kBits));
  // Packing works within each half of a register; 0x08 puts the first quarter of both halves side by side.
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08);
  return _mm256_castsi256_si128(bytes);
}

// Sixteen samples as 16-bit values; see ToNumber for the limit.
JAXDALI_SIMD JAXDALI_INLINE __m256i LoadWords(const uint8_t* y) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(y)));
}
JAXDALI_SIMD JAXDALI_INLINE __m256i LoadWords(const uint16_t* y) {
  return _mm256_min_epu16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(y)), _mm256_set1_epi16(1023));
}

// Computes the first pixels of a row, 16 at a time; returns how many.
template <typename Sample>
JAXDALI_SIMD int64_t ConvertPixelsSimd(const Sample* y, const Row& row, int64_t width, const YuvFactors& f,
                                       uint8_t* rgb) {
  constexpr int kBits = kShift<Sample>;
  const __m256i red = SetPair(f.luma, f.red_v), blue = SetPair(f.luma, f.blue_u), green = SetPair(f.luma, f.green_u);
  const __m256i green_v = SetPair(f.green_v, 0);
  const __m256i offset = _mm256_set1_epi32((1 << (kBits - 1)) - 16 * f.black * f.luma), zero = _mm256_setzero_si256();
  int64_t x = 0;
  for (; x + 16 <= width; x += 16) {
    const __m256i grey = _mm256_slli_epi16(LoadWords(y + x), 4);
    const __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.u + x));
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.v + x));
    // Pairs of luma and a difference of chroma, so that one instruction multiplies both and adds the products.
    const __m256i yv0 = _mm256_unpacklo_epi16(grey, v), yv1 = _mm256_unpackhi_epi16(grey, v);
    const __m256i yu0 = _mm256_unpacklo_epi16(grey, u), yu1 = _mm256_unpackhi_epi16(grey, u);
    const __m256i v0 = _mm256_unpacklo_epi16(v, zero), v1 = _mm256_unpackhi_epi16(v, zero);
    const __m128i r = RoundToBytes<kBits>(_mm256_add_epi32(_mm256_madd_epi16(yv0, red), offset),
                                          _mm256_add_epi32(_mm256_madd_epi16(yv1, red), offset));
    // Green depends on both differences, so it takes a second product.
    const __m256i g0 = _mm256_add_epi32(_mm256_madd_epi16(yu0, green), _mm256_madd_epi16(v0, green_v));
    const __m256i g1 = _mm256_add_epi32(_mm256_madd_epi16(yu1, green), _mm256_madd_epi16(v1, green_v));
    const __m128i g = RoundToBytes<kBits>(_mm256_add_epi32(g0, offset), _mm256_add_epi32(g1, offset));
    const __m128i b = RoundToBytes<kBits>(_mm256_add_epi32(_mm256_madd_epi16(yu0, blue), offset),
                                          _mm256_add_epi32(_mm256_madd_epi16(yu1, blue), offset));
    StorePart<0>(r, g, b, rgb + 3 * x);
    StorePart<1>(r, g, b, rgb + 3 * x);
    StorePart<2>(r, g, b, rgb + 3 * x);
  }
  return x;
}

template <typename Sample>
JAXDALI_SIMD void ChromaSimd(const Sample* near, const Sample* far, int64_t width, bool half_width, int16_t* blend,
                             int16_t* out) {
  Chroma(near, far, width, half_width, blend, out);
}

template <typename Sample>
constexpr Steps<Sample> kSimd = {ChromaSimd<Sample>, ConvertPixelsSimd<Sample>};

#endif

}  // namespace

// Converts a frame with the fastest steps for this CPU. The working rows have room for chroma beyond the width.
template <typename Sample>
void YuvToRgb(const YuvFrame<Sample>& frame, uint8_t* rgb) {
  const int64_t n = frame.width + 32;
  std::vector<int16_t> words(3 * n);
  const Row row = {&words[0], &words[n], &words[2 * n]};
#if defined(__x86_64__)
  if (kHasSimd) return Convert(frame, row, rgb, kSimd<Sample>);
#endif
  Convert(frame, row, rgb, kPortable<Sample>);
}

template void YuvToRgb(const YuvFrame<uint8_t>&, uint8_t*);
template void YuvToRgb(const YuvFrame<uint16_t>&, uint8_t*);

}  // namespace jaxdali
