// CPU kernel of the gather by a coordinate map: the points of a piece of a row, then its pixels.
#include "ffi/remap/remap.h"

#include <algorithm>
#include <cstring>
#include <vector>

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
void FindPoints(const RemapArgs& a, const float* waves, int64_t frame, int64_t x, int64_t y, int64_t n, Point* points) {
  if constexpr (kPoints == Points::kWater) {
    const float shift = WaterX(a.numbers, y);
    for (int64_t i = 0; i < n; i++)
      points[i] = {static_cast<float>(x + i) + shift, static_cast<float>(y) + waves[x + i]};
  } else {
    for (int64_t i = 0; i < n; i++) points[i] = SourcePoint<kPoints>(a, frame, x + i, y);
  }
}

template <class T, Sampling kSampling, int C>
void SamplePixels(const RemapArgs& a, const T* in, const Point* points, int64_t n, T* out) {
  const int64_t channels = C ? C : a.channels;
  for (int64_t i = 0; i < n; i++) SamplePixel<T, kSampling, C>(a, in, points[i], out + i * channels);
}

template <class T, Sampling kSampling, int C>
void RemapImages(const RemapArgs& a) {
  const std::vector<float> waves = Waves(a);
  const T* in = static_cast<const T*>(a.in);
  T* out = static_cast<T*>(a.out);
  Point points[kPiece];
  for (int64_t frame = 0; frame < a.frames; frame++, in += a.in_size[0] * a.in_size[1] * a.channels) {
    for (int64_t y = 0; y < a.out_size[1]; y++) {
      for (int64_t x = 0; x < a.out_size[0]; x += kPiece) {
        const int64_t n = std::min(kPiece, a.out_size[0] - x);
        WithPoints(a.points, [&](auto p) { FindPoints<p.value>(a, waves.data(), frame, x, y, n, points); });
        SamplePixels<T, kSampling, C>(a, in, points, n, out);
        out += n * a.channels;
      }
    }
  }
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
    switch (a.channels) {
      case 1:
        return RemapImages<T, sampling.value, 1>(a);
      case 3:
        return RemapImages<T, sampling.value, 3>(a);
      default:
        return RemapImages<T, sampling.value, 0>(a);
    }
  });
  return kOk;
}

}  // namespace jaxdali
