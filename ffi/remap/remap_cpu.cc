// CPU kernel of the gather by a coordinate map. A row is done in pieces of kPiece pixels, in three steps:
//
//   1. FindPoints     the source point of each pixel. One function for each kind of Points, whatever the pixels' type.
//   2. Places         for each point, the offset of its first neighbour, or -1 if a neighbour lies outside the image.
//   3. SamplePixels   the pixels. WeighLinear and WeighBytes make runs of RGB or RGBA bytes inside the image with
//                     vectors, a scalar loop makes the others inside, and SamplePixel (remap.h) those at the border.
//
// All steps are compiled for AVX2 or NEON (JAXDALI_SIMD) and for any CPU, with the same results.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ffi/common/pixels.h"
#include "ffi/remap/remap.h"

namespace jaxdali {
namespace {

constexpr int64_t kPiece = 256;  // pixels, so that the arrays of a piece stay in the L1 cache

// The waves along x, which the points of all rows share. Empty for other kinds of points.
std::vector<float> Waves(const RemapArgs& a) {
  std::vector<float> waves(a.points == Points::kWater ? static_cast<size_t>(a.out_size[0]) : 0);
  for (size_t x = 0; x < waves.size(); x++) waves[x] = WaterY(a.numbers, static_cast<int64_t>(x));
  return waves;
}

// The source points of output pixels (x, y) to (x + n - 1, y).
template <Points kPoints>
JAXDALI_INLINE void FindPoints(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n,
                               double* xs, double* ys) {
  if constexpr (kPoints == Points::kProjective) {
    double numbers[9];
    std::copy_n(a.numbers, 9, numbers);
    const int32_t first = static_cast<int32_t>(x), count = static_cast<int32_t>(n);  // 64 bits do not vectorize
    for (int32_t i = 0; i < count; i++) {
      const Point p = Projected(numbers, static_cast<double>(first + i), static_cast<double>(y));
      xs[i] = p.x;
      ys[i] = p.y;
    }
    return;
  }
  const float shift = kPoints == Points::kWater ? WaterX(a.numbers, y) : 0;
  for (int64_t i = 0; i < n; i++) {
    if constexpr (kPoints == Points::kWater) {
      xs[i] = static_cast<float>(x + i) + shift;
      ys[i] = static_cast<float>(y) + waves[x + i];
    } else {
      const Point p = SourcePoint<kPoints>(a, frame, x + i, y);
      xs[i] = p.x;
      ys[i] = p.y;
    }
  }
}

#if defined(JAXDALI_SIMD)
// Makes pixels of three or four bytes like SamplePixel. `offset`: the first neighbour of each, in bytes from `in`; fx,
// fy: the fractions; `stride`: bytes of a row. It reads four bytes of each neighbour.
template <int C, int kTaps>
JAXDALI_SIMD void WeighBytes(const uint8_t* in, const int32_t* offset, const float* fx, const float* fy, int64_t n,
                             int64_t stride, uint8_t* out) {
  for (int64_t i = 0; i < n; i++, out += C) {
    float wx[kTaps], wy[kTaps];
    TapWeights<kTaps>(fx[i], wx);
    TapWeights<kTaps>(fy[i], wy);
    __m128 sum = _mm_setzero_ps();
    for (int j = 0; j < kTaps; j++) {
      __m128 line = _mm_setzero_ps();
      for (int k = 0; k < kTaps; k++) {
        int32_t bytes;
        std::memcpy(&bytes, in + offset[i] + j * stride + k * C, 4);
        const __m128 pixel = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)));
        line = _mm_add_ps(line, _mm_mul_ps(pixel, _mm_set1_ps(wx[k])));
      }
      sum = _mm_add_ps(sum, _mm_mul_ps(line, _mm_set1_ps(wy[j])));
    }
    __m128i whole = _mm_cvttps_epi32(sum);  // rounds half away from zero; negative values become 0
    const __m128 rest = _mm_sub_ps(sum, _mm_cvtepi32_ps(whole));
    whole = _mm_sub_epi32(whole, _mm_castps_si128(_mm_cmpge_ps(rest, _mm_set1_ps(0.5f))));
    const __m128i words = _mm_packus_epi32(whole, whole);
    const int32_t result = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out, &result, C);
  }
}

// Interpolates along x: the weighted sum of the two neighbours of a point, of the line above in the low lane and of the
// line below in the high one. It reads eight bytes of both lines. near, far: weights of the left and the right
// neighbour.
template <int C>
JAXDALI_SIMD JAXDALI_INLINE __m256 WeighLines(const uint8_t* from, int64_t stride, const float* near,
                                              const float* far) {
  // Four bytes for each pixel: the left neighbours of the two lines, then the right ones.
  const __m128i order = C == 3 ? _mm_setr_epi8(0, 1, 2, -1, 8, 9, 10, -1, 3, 4, 5, -1, 11, 12, 13, -1)
                               : _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
  const __m128i above = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m128i below = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + stride));
  const __m128i bytes = _mm_shuffle_epi8(_mm_unpacklo_epi64(above, below), order);
  return _mm256_add_ps(_mm256_mul_ps(EightFloats(bytes), _mm256_broadcast_ss(near)),
                       _mm256_mul_ps(EightFloats(_mm_unpackhi_epi64(bytes, bytes)), _mm256_broadcast_ss(far)));
}

// Interpolates along y: makes two pixels from their lines (results of WeighLines), as bytes in 32-bit words. near, far:
// weights of the lines above and below; those of the two pixels are numbers kFirst and kFirst + 1.
template <int kFirst>
JAXDALI_SIMD JAXDALI_INLINE __m256i JoinLines(__m256 first, __m256 second, __m128 near, __m128 far) {
  const __m256i pixel =
      _mm256_setr_epi32(kFirst, kFirst, kFirst, kFirst, kFirst + 1, kFirst + 1, kFirst + 1, kFirst + 1);
  const __m256 above = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(near), pixel);
  const __m256 below = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(far), pixel);
  // 0x20 takes the low lanes of both pixels (the lines above), 0x31 the high ones.
  return RoundToBytes(_mm256_add_ps(_mm256_mul_ps(_mm256_permute2f128_ps(first, second, 0x20), above),
                                    _mm256_mul_ps(_mm256_permute2f128_ps(first, second, 0x31), below)));
}

// WeighBytes for two neighbours along each axis, four pixels at a time.
template <int C>
JAXDALI_SIMD void WeighLinear(const uint8_t* in, const int32_t* offset, const float* fx, const float* fy, int64_t n,
                              int64_t stride, uint8_t* out) {
  // From four bytes for each of the pixels 0, 2, 1, 3 to packed pixels in their order.
  const __m128i order = C == 3 ? _mm_setr_epi8(0, 1, 2, 8, 9, 10, 4, 5, 6, 12, 13, 14, -1, -1, -1, -1)
                               : _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
  const __m128 one = _mm_set1_ps(1);
  int64_t i = 0;
  for (; i + 6 <= n; i += 4) {  // writes 16 bytes, the last of which may belong to the next pixels
    alignas(16) float near[4];
    _mm_store_ps(near, _mm_sub_ps(one, _mm_loadu_ps(fx + i)));
    __m256 lines[4];
    for (int k = 0; k < 4; k++) lines[k] = WeighLines<C>(in + offset[i + k], stride, near + k, fx + i + k);
    const __m128 far_y = _mm_loadu_ps(fy + i), near_y = _mm_sub_ps(one, far_y);
    const __m256i words = _mm256_packs_epi32(JoinLines<0>(lines[0], lines[1], near_y, far_y),
                                             JoinLines<2>(lines[2], lines[3], near_y, far_y));  // pixels 0, 2; 1, 3
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * C), _mm_shuffle_epi8(bytes, order));
  }
  WeighBytes<C, 2>(in, offset + i, fx + i, fy + i, n - i, stride, out + i * C);
}
#endif

// Finds the points whose neighbours are all inside, and the offset of their first neighbour.
struct Places {
  double half;          // 0.5 to interpolate between centres of pixels, 0 for nearest neighbours
  double least;         // the coordinates, less `half`, for which all neighbours exist: least <= x < end_x ...
  double end_x, end_y;  // ... and least <= y < end_y
  int32_t stride;       // elements of a row
  int32_t channels;     // elements of a pixel
  int32_t lead;         // elements from the first neighbour to the pixel that contains the point

  // offset: that of the first neighbour, in elements, or -1 if a neighbour is outside. fx, fy: the fractions of the
  // points.
  void Find(const double* xs, const double* ys, int64_t n, int32_t* offset, float* fx, float* fy) const {
    for (int64_t i = 0; i < n; i++) {
      const double x = xs[i] - half, y = ys[i] - half;
      const bool inside = (x >= least) & (x < end_x) & (y >= least) & (y < end_y);
      const int32_t column = static_cast<int32_t>(inside ? x : 0),
                    row = static_cast<int32_t>(inside ? y : 0);  // equals floor
      const int32_t place = row * stride + column * channels - lead;
      offset[i] = inside ? place : -1;
      fx[i] = static_cast<float>(x - column);
      fy[i] = static_cast<float>(y - row);
    }
  }
#if defined(JAXDALI_SIMD)
  // Find with AVX2 or NEON, four points at a time.
  JAXDALI_SIMD void FindSimd(const double* xs, const double* ys, int64_t n, int32_t* offset, float* fx,
                             float* fy) const {
    const __m256d first = _mm256_set1_pd(least), ends_x = _mm256_set1_pd(end_x), ends_y = _mm256_set1_pd(end_y);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      const __m256d x = _mm256_sub_pd(_mm256_loadu_pd(xs + i), _mm256_set1_pd(half));
      const __m256d y = _mm256_sub_pd(_mm256_loadu_pd(ys + i), _mm256_set1_pd(half));
      const __m256d in_x = _mm256_and_pd(_mm256_cmp_pd(x, first, _CMP_GE_OQ), _mm256_cmp_pd(x, ends_x, _CMP_LT_OQ));
      const __m256d in_y = _mm256_and_pd(_mm256_cmp_pd(y, first, _CMP_GE_OQ), _mm256_cmp_pd(y, ends_y, _CMP_LT_OQ));
      const __m256d inside = _mm256_and_pd(in_x, in_y);
      const __m128i column = _mm256_cvttpd_epi32(_mm256_and_pd(inside, x));
      const __m128i row = _mm256_cvttpd_epi32(_mm256_and_pd(inside, y));
      const __m128i place = _mm_sub_epi32(_mm_add_epi32(_mm_mullo_epi32(row, _mm_set1_epi32(stride)),
                                                        _mm_mullo_epi32(column, _mm_set1_epi32(channels))),
                                          _mm_set1_epi32(lead));
      // Points outside count as (0, 0) here, so that all conversions are defined. Their offsets become -1. 0x88 takes
      // the low word of each 64-bit mask.
      const __m128 masks = _mm_shuffle_ps(_mm_castpd_ps(_mm256_castpd256_pd128(inside)),
                                          _mm_castpd_ps(_mm256_extractf128_pd(inside, 1)), 0x88);
      const __m128i none = _mm_set1_epi32(-1);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(offset + i), _mm_blendv_epi8(none, place, _mm_castps_si128(masks)));
      _mm_storeu_ps(fx + i, _mm256_cvtpd_ps(_mm256_sub_pd(x, _mm256_cvtepi32_pd(column))));
      _mm_storeu_ps(fy + i, _mm256_cvtpd_ps(_mm256_sub_pd(y, _mm256_cvtepi32_pd(row))));
    }
    Find(xs + i, ys + i, n - i, offset + i, fx + i, fy + i);
  }
#endif
};

// Makes n pixels from their source points. SamplePixel makes those at the border, with the same results.
template <class T, Interp kSampling, int C, bool kSimd>
JAXDALI_INLINE void SamplePixels(const RemapArgs& a, const T* in, const double* xs, const double* ys, int64_t n,
                                 T* out) {
  constexpr int kTaps = TapsOf(kSampling);
  constexpr bool kBytes = kSimd && std::is_same_v<T, uint8_t> && (C == 3 || C == 4) && kTaps > 1;
  constexpr int kBefore = kTaps == 4;  // neighbours before the point's own pixel
  // WeighBytes and WeighLinear read one or two bytes after the last neighbour of RGB, so there must be another pixel.
  constexpr int kAfter = kBytes && C == 3;
  const int64_t channels = C ? C : a.channels, width = a.in_size[0], stride = width * channels;
  const bool fits = stride * a.in_size[1] < INT32_MAX;  // offsets have 32 bits; otherwise no point counts as inside
  const Places places{.half = kTaps > 1 ? 0.5 : 0,
                      .least = kBefore,
                      .end_x = static_cast<double>(width - kTaps + 1 - kAfter + kBefore),
                      .end_y = static_cast<double>(fits ? a.in_size[1] - kTaps + 1 + kBefore : 0),
                      .stride = static_cast<int32_t>(stride),
                      .channels = static_cast<int32_t>(channels),
                      .lead = static_cast<int32_t>(kBefore * (stride + channels))};
  int32_t offset[kPiece];
  float fx[kPiece], fy[kPiece];
#if defined(JAXDALI_SIMD)
  if constexpr (kSimd)
    places.FindSimd(xs, ys, n, offset, fx, fy);
  else
#endif
    places.Find(xs, ys, n, offset, fx, fy);
  for (int64_t i = 0; i < n; i++) {
    if (offset[i] < 0) {
      SamplePixel<T, kSampling, C>(a, in, {xs[i], ys[i]}, out + i * channels);
      continue;
    }
    const T* from = in + offset[i];
    T* to = out + i * channels;
    if constexpr (kSampling == Interp::kNN) {
      for (int64_t c = 0; c < channels; c++) to[c] = from[c];
      continue;
    }
#if defined(JAXDALI_SIMD)
    if constexpr (kBytes) {  // all pixels up to the next one at the border
      int64_t end = i + 1;
      while (end < n && offset[end] >= 0) end++;
      if constexpr (kTaps == 2)
        WeighLinear<C>(in, offset + i, fx + i, fy + i, end - i, stride, to);
      else
        WeighBytes<C, kTaps>(in, offset + i, fx + i, fy + i, end - i, stride, to);
      i = end - 1;
      continue;
    }
#endif
    float wx[kTaps], wy[kTaps];
    TapWeights<kTaps>(fx[i], wx);
    TapWeights<kTaps>(fy[i], wy);
    for (int64_t c = 0; c < channels; c++) {
      float sum = 0;
      for (int j = 0; j < kTaps; j++) {
        float line = 0;
        for (int k = 0; k < kTaps; k++) line += static_cast<float>(from[j * stride + k * channels + c]) * wx[k];
        sum += line * wy[j];
      }
      to[c] = ConvertTo<T>(sum);
    }
  }
}

// FindPoints of one kind of points, as a pointer, so that it is compiled once and not for each type of pixels.
using Finder = void (*)(const RemapArgs&, const float*, int64_t, int64_t, int64_t, int64_t, double*, double*);

template <Points kPoints>
void FindPortable(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n, double* xs,
                  double* ys) {
  FindPoints<kPoints>(a, waves, frame, x, y, n, xs, ys);
}

// Makes all frames of a sample, row by row in pieces. C: channels; 0: any number.
template <class T, Interp kSampling, int C, bool kSimd>
JAXDALI_INLINE void RemapImages(const RemapArgs& a, Finder find, const float* waves) {
  const T* in = static_cast<const T*>(a.in);
  T* out = static_cast<T*>(a.out);
  double xs[kPiece], ys[kPiece];
  for (int64_t frame = 0; frame < a.frames; frame++, in += a.in_size[0] * a.in_size[1] * a.channels) {
    for (int64_t y = 0; y < a.out_size[1]; y++) {
      for (int64_t x = 0; x < a.out_size[0]; x += kPiece) {
        const int64_t n = std::min(kPiece, a.out_size[0] - x);
        find(a, waves, frame, x, y, n, xs, ys);
        SamplePixels<T, kSampling, C, kSimd>(a, in, xs, ys, n, out);
        out += n * a.channels;
      }
    }
  }
}

#if defined(JAXDALI_SIMD)
template <Points kPoints>
JAXDALI_SIMD void FindSimd(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n,
                           double* xs, double* ys) {
  FindPoints<kPoints>(a, waves, frame, x, y, n, xs, ys);
}

template <class T, Interp kSampling, int C>
JAXDALI_SIMD void RemapSimd(const RemapArgs& a, Finder find, const float* waves) {
  RemapImages<T, kSampling, C, true>(a, find, waves);
}
#endif

// RemapImages in the version for this CPU, with the sample's kind of points.
template <class T, Interp kSampling, int C>
void RemapChannels(const RemapArgs& a) {
  const std::vector<float> waves = Waves(a);
#if defined(JAXDALI_SIMD)
  if (kHasSimd) {
    const Finder find = WithPoints(a.points, [](auto p) -> Finder { return FindSimd<p.value>; });
    return RemapSimd<T, kSampling, C>(a, find, waves.data());
  }
#endif
  const Finder find = WithPoints(a.points, [](auto p) -> Finder { return FindPortable<p.value>; });
  RemapImages<T, kSampling, C, false>(a, find, waves.data());
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Remap(const RemapBatch& batch, int i) {
  RemapArgs a;
  if (const Status status = batch.Sample(i, &a); status != kOk) return status;
  if (!batch.applied[i]) {
    std::memcpy(a.out, a.in, static_cast<size_t>(batch.in.size(i) * SizeOf(batch.in.dtype)));
    return kOk;
  }
  // Loops over a known number of channels are faster. Bytes are compiled for the usual numbers; 0: any number.
  WithSampling(batch.in.dtype, a.sampling, [&](auto t, auto sampling) {
    using T = decltype(t);
    if constexpr (sizeof(T) == 1) {
      switch (a.channels) {
        case 1:
          return RemapChannels<T, sampling.value, 1>(a);
        case 3:
          return RemapChannels<T, sampling.value, 3>(a);
        case 4:
          return RemapChannels<T, sampling.value, 4>(a);
      }
    }
    RemapChannels<T, sampling.value, 0>(a);
  });
  return kOk;
}

}  // namespace jaxdali
