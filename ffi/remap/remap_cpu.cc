// CPU kernel of the gather by a coordinate map: the points of a piece of a row, then its pixels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ffi/common/simd.h"
#include "ffi/remap/remap.h"

namespace jaxdali {
namespace {

constexpr int64_t kPiece = 256;

// What the points of all rows have in common: the waves along x.
std::vector<float> Waves(const RemapArgs& a) {
  std::vector<float> waves(a.points == Points::kWater ? static_cast<size_t>(a.out_size[0]) : 0);
  for (size_t x = 0; x < waves.size(); x++) waves[x] = WaterY(a.numbers, static_cast<int64_t>(x));
  return waves;
}

template <Points kPoints>
JAXDALI_INLINE void FindPoints(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n,
                               double* xs, double* ys) {
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

#if defined(__x86_64__)
// Pixels of three or four bytes, as SamplePixel makes them. `at`: the first neighbours' places; fx, fy: the fractions.
// Four bytes of each neighbour are read.
template <int C, int kTaps>
JAXDALI_AVX2 void WeighBytes(const uint8_t* in, const int32_t* at, const float* fx, const float* fy, int64_t n,
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
        std::memcpy(&bytes, in + at[i] + j * stride + k * C, 4);
        const __m128 pixel = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)));
        line = _mm_add_ps(line, _mm_mul_ps(pixel, _mm_set1_ps(wx[k])));
      }
      sum = _mm_add_ps(sum, _mm_mul_ps(line, _mm_set1_ps(wy[j])));
    }
    __m128i whole = _mm_cvttps_epi32(sum);  // halves away from zero; what is negative becomes 0
    const __m128 rest = _mm_sub_ps(sum, _mm_cvtepi32_ps(whole));
    whole = _mm_sub_epi32(whole, _mm_castps_si128(_mm_cmpge_ps(rest, _mm_set1_ps(0.5f))));
    const __m128i words = _mm_packus_epi32(whole, whole);
    const int32_t result = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out, &result, C);
  }
}
#endif

// The pixels of which all neighbours are inside are made here, the others by SamplePixel, with the same results.
template <class T, Sampling kSampling, int C, bool kAvx2>
JAXDALI_INLINE void SamplePixels(const RemapArgs& a, const T* in, const double* xs, const double* ys, int64_t n,
                                 T* out) {
  constexpr int kTaps = TapsOf(kSampling);
  constexpr bool kBytes = kAvx2 && std::is_same_v<T, uint8_t> && (C == 3 || C == 4) && kTaps > 1;
  constexpr double kHalf = kTaps > 1 ? 0.5 : 0;
  constexpr int kBefore = kTaps == 4;  // neighbours before the point's
  const int64_t channels = C ? C : a.channels, width = a.in_size[0], stride = width * channels;
  // Where WeighBytes reads a byte too many, there must be a pixel behind the last one.
  const bool fits = stride * a.in_size[1] < INT32_MAX;
  const double last_x = static_cast<double>(width - kTaps + 1 - (kBytes && C == 3) + kBefore);
  const double last_y = static_cast<double>(fits ? a.in_size[1] - kTaps + 1 + kBefore : 0);
  const int32_t before = static_cast<int32_t>(kBefore * (stride + channels));
  int32_t at[kPiece];
  float fx[kPiece], fy[kPiece];
  for (int64_t i = 0; i < n; i++) {
    const double x = xs[i] - kHalf, y = ys[i] - kHalf;
    const bool inside = (x >= kBefore) & (x < last_x) & (y >= kBefore) & (y < last_y);
    const int32_t column = static_cast<int32_t>(inside ? x : 0),
                  row = static_cast<int32_t>(inside ? y : 0);  // as floor
    const int32_t place = row * static_cast<int32_t>(stride) + column * static_cast<int32_t>(channels) - before;
    at[i] = inside ? place : -1;
    fx[i] = static_cast<float>(x - column);
    fy[i] = static_cast<float>(y - row);
  }
  for (int64_t i = 0; i < n; i++) {
    if (at[i] < 0) {
      SamplePixel<T, kSampling, C>(a, in, {xs[i], ys[i]}, out + i * channels);
      continue;
    }
    const T* from = in + at[i];
    T* to = out + i * channels;
    if constexpr (kSampling == Sampling::kNearest) {
      for (int64_t c = 0; c < channels; c++) to[c] = from[c];
      continue;
    }
#if defined(__x86_64__)
    if constexpr (kBytes) {
      int64_t end = i + 1;
      while (end < n && at[end] >= 0) end++;
      WeighBytes<C, kTaps>(in, at + i, fx + i, fy + i, end - i, stride, to);
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

// FindPoints of a kind, for whatever pixels are made of them.
using Finder = void (*)(const RemapArgs&, const float*, int64_t, int64_t, int64_t, int64_t, double*, double*);

template <Points kPoints>
void FindPortable(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n, double* xs,
                  double* ys) {
  FindPoints<kPoints>(a, waves, frame, x, y, n, xs, ys);
}

template <class T, Sampling kSampling, int C, bool kAvx2>
JAXDALI_INLINE void RemapImages(const RemapArgs& a, Finder find, const float* waves) {
  const T* in = static_cast<const T*>(a.in);
  T* out = static_cast<T*>(a.out);
  double xs[kPiece], ys[kPiece];
  for (int64_t frame = 0; frame < a.frames; frame++, in += a.in_size[0] * a.in_size[1] * a.channels) {
    for (int64_t y = 0; y < a.out_size[1]; y++) {
      for (int64_t x = 0; x < a.out_size[0]; x += kPiece) {
        const int64_t n = std::min(kPiece, a.out_size[0] - x);
        find(a, waves, frame, x, y, n, xs, ys);
        SamplePixels<T, kSampling, C, kAvx2>(a, in, xs, ys, n, out);
        out += n * a.channels;
      }
    }
  }
}

#if defined(__x86_64__)
template <Points kPoints>
JAXDALI_AVX2 void FindAvx2(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n,
                           double* xs, double* ys) {
  FindPoints<kPoints>(a, waves, frame, x, y, n, xs, ys);
}

template <class T, Sampling kSampling, int C>
JAXDALI_AVX2 void RemapAvx2(const RemapArgs& a, Finder find, const float* waves) {
  RemapImages<T, kSampling, C, true>(a, find, waves);
}
#endif

template <class T, Sampling kSampling, int C>
void RemapChannels(const RemapArgs& a) {
  const std::vector<float> waves = Waves(a);
#if defined(__x86_64__)
  if (kHasAvx2) {
    const Finder find = WithPoints(a.points, [](auto p) -> Finder { return FindAvx2<p.value>; });
    return RemapAvx2<T, kSampling, C>(a, find, waves.data());
  }
#endif
  const Finder find = WithPoints(a.points, [](auto p) -> Finder { return FindPortable<p.value>; });
  RemapImages<T, kSampling, C, false>(a, find, waves.data());
}

}  // namespace

Status Remap(const RemapBatch& batch, int i) {
  RemapArgs a;
  if (const Status status = batch.Sample(i, &a); status != kOk) return status;
  if (!batch.applied[i]) {
    std::memcpy(a.out, a.in, static_cast<size_t>(batch.in.size(i) * SizeOf(batch.in.dtype)));
    return kOk;
  }
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
