// The weights of a new sample depend only on the fraction of its position, and their distances from it are whole
// numbers apart. So the table is stored by the place within an old sample, and the weights of neighbouring old samples
// are neighbours: vectors of them are loaded and interpolated together.
#include "ffi/host/signals.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ffi/common/simd.h"

namespace jaxdali {
namespace {

constexpr int kEach = 16;          // numbers at a time
constexpr int kBlock = 256;        // DALI adds up positions in single precision, and begins anew after so many samples
constexpr int kRun = 32;           // new samples whose weights are kept at a time
constexpr int kMostCopied = 1024;  // old samples of a channel that are copied at a time
constexpr int kMostTaps = 2 * ResamplingFilter::kMostLobes;
static_assert(kMostTaps % kEach == 0 && kMostTaps <= kMostCopied && kBlock % kRun == 0);

alignas(64) constexpr float kCount[kEach] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// kEach numbers in vectors of kBytes, the size of a register.
template <int kBytes>
struct Numbers {
  using Vector __attribute__((vector_size(kBytes))) = float;
  static constexpr int kParts = kEach * static_cast<int>(sizeof(float)) / kBytes;
  Vector part[kParts];

  // By parts, because compilers copy the whole through shorter registers.
  JAXDALI_INLINE void Load(const float* from) {
    for (int p = 0; p < kParts; p++) std::memcpy(&part[p], from + p * kEach / kParts, kBytes);
  }
  JAXDALI_INLINE void Store(float* to) const {
    for (int p = 0; p < kParts; p++) std::memcpy(to + p * kEach / kParts, &part[p], kBytes);
  }
};

// The table by the place within an old sample: rows of the values at this place for each old sample under the filter,
// and of the differences to the table's next values. Rows are filled up with zeros to whole vectors.
struct Places {
  static constexpr int kRows = ResamplingFilter::kPoints + 1;  // the last one for places that are rounded up to 1

  explicit Places(const ResamplingFilter& filter)
      : lobes(filter.lobes), taps(2 * filter.lobes), whole_taps((taps + kEach - 1) / kEach * kEach) {
    for (int row = 0; row < kRows; row++) {
      for (int k = 0; k < taps; k++) {
        const float* entry = filter.table + 1 + row + ResamplingFilter::kPoints * k;
        values[row][k] = entry[0];
        slopes[row][k] = entry[1] - entry[0];
      }
      std::fill(values[row] + taps, values[row] + whole_taps, 0.0f);
      std::fill(slopes[row] + taps, slopes[row] + whole_taps, 0.0f);
    }
  }

  int lobes, taps, whole_taps;  // the last one a multiple of kEach
  alignas(64) float values[kRows][kMostTaps], slopes[kRows][kMostTaps];
};

// Writes the weights of the old samples around a new one whose position has this fraction, rounded as DALI's.
template <int kBytes>
JAXDALI_INLINE void Weigh(const Places& places, float fraction, float* weights) {
  constexpr float kPoints = ResamplingFilter::kPoints;
  const float centre = kPoints * static_cast<float>(places.lobes) + 1;
  // The first old sample, relative to the one at or before the new sample.
  const float first = static_cast<float>((fraction > 0 ? 1 : 0) - places.lobes);
  const float first_index = std::floor((first - fraction) * kPoints + centre);
  const int row = std::clamp(static_cast<int>(first_index) - 1, 0, Places::kRows - 1);
  Numbers<kBytes> count, value, slope;
  count.Load(kCount);
  for (int k = 0; k < places.taps; k += kEach) {
    value.Load(places.values[row] + k);
    slope.Load(places.slopes[row] + k);
    for (int p = 0; p < value.kParts; p++) {
      const auto number = count.part[p] + static_cast<float>(k);
      const auto position = ((number + first) - fraction) * kPoints + centre;
      value.part[p] += (position - (number * kPoints + first_index)) * slope.part[p];
    }
    value.Store(weights + k);
  }
}

// The sum of weights[k] * x[k], k < taps: kEach sums, each of every kEach-th product, which are added up at last. Both
// arrays go on to whole vectors.
template <int kBytes>
JAXDALI_INLINE float Dot(const float* weights, const float* x, int taps) {
  Numbers<kBytes> sum{}, weight, old, count;
  int k = 0;
  for (; k + kEach <= taps; k += kEach) {
    weight.Load(weights + k);
    old.Load(x + k);
    for (int p = 0; p < sum.kParts; p++) sum.part[p] += weight.part[p] * old.part[p];
  }
  if (k < taps) {
    // Left out rather than multiplied by 0: they may be infinite.
    weight.Load(weights + k);
    old.Load(x + k);
    count.Load(kCount);
    const auto rest = static_cast<float>(taps - k);
    for (int p = 0; p < sum.kParts; p++)
      sum.part[p] = count.part[p] < rest ? sum.part[p] + weight.part[p] * old.part[p] : sum.part[p];
  }
  for (int half = sum.kParts / 2; half > 0; half /= 2)
    for (int p = 0; p < half; p++) sum.part[p] += sum.part[half + p];
  constexpr int kLanes = kEach / sum.kParts;
  float sums[kLanes];
  std::memcpy(sums, &sum.part[0], sizeof sums);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[half + i];
  return sums[0];
}

// A signal x[n, channels] that is read by channels, with zeros beyond its ends.
struct Signal {
  const float* x;
  int64_t n, channels;

  // Samples [begin, end) of channel c: in place, or copied to `copy`.
  const float* Read(int64_t c, int64_t begin, int64_t end, float* copy) const {
    if (channels == 1 && begin >= 0 && end <= n) return x + begin;
    std::fill(copy, copy + (end - begin), 0.0f);
    const int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, n);
    for (int64_t i = first; i < last; i++) copy[i - begin] = x[i * channels + c];
    return copy;
  }
};

template <int kBytes>
JAXDALI_INLINE void ResampleWith(const Signal& signal, double step, const Places& places, float* out, int64_t length) {
  alignas(64) float weights[kRun][kMostTaps], copy[kMostCopied];
  const float* weights_of[kRun];
  int64_t starts[kRun];  // the first old sample around each new one
  for (int64_t block = 0; block < length; block += kBlock) {
    const double begin = static_cast<double>(block) * step, whole = std::floor(begin);
    auto position = static_cast<float>(begin - whole);  // relative to `whole`
    const int64_t end = std::min(block + kBlock, length);
    for (int64_t o = block; o < end;) {
      // New samples whose old ones lie close together.
      int count = 0;
      float last_fraction = -1;
      for (; count < kRun && o + count < end; count++) {
        const float floor = std::floor(position), fraction = position - floor;
        const int64_t start =
            static_cast<int64_t>(whole) + static_cast<int64_t>(floor) + (fraction > 0 ? 1 : 0) - places.lobes;
        if (count > 0 && start + places.whole_taps - starts[0] > kMostCopied) break;
        starts[count] = start;
        // The weights stay the same where the ratio of the rates is a whole number.
        weights_of[count] = fraction == last_fraction ? weights_of[count - 1] : weights[count];
        if (fraction != last_fraction) Weigh<kBytes>(places, fraction, weights[count]);
        last_fraction = fraction;
        position += static_cast<float>(step);
      }
      for (int64_t c = 0; c < signal.channels; c++) {
        const float* x = signal.Read(c, starts[0], starts[count - 1] + places.whole_taps, copy);
        for (int i = 0; i < count; i++)
          out[(o + i) * signal.channels + c] = Dot<kBytes>(weights_of[i], x + (starts[i] - starts[0]), places.taps);
      }
      o += count;
    }
  }
}

#if defined(JAXDALI_SIMD)
JAXDALI_SIMD void ResampleSimd(const Signal& signal, double step, const Places& places, float* out, int64_t length) {
  ResampleWith<kSimdBytes>(signal, step, places, out, length);
}
#endif

}  // namespace

void Resample(const float* x, int64_t n, int64_t channels, double step, const ResamplingFilter& filter, float* out,
              int64_t length) {
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return ResampleSimd({x, n, channels}, step, Places(filter), out, length);
#endif
  ResampleAnywhere(x, n, channels, step, filter, out, length);
}

void ResampleAnywhere(const float* x, int64_t n, int64_t channels, double step, const ResamplingFilter& filter,
                      float* out, int64_t length) {
  ResampleWith<16>({x, n, channels}, step, Places(filter), out, length);
}

void MeanPowers(double* squares, int64_t n, int64_t window, float* out) {
  double sum = 0;
  for (int64_t k = 0; k < n; k++) {
    sum += squares[k];
    squares[k] = sum;
    const int64_t first = k - window + 1;  // of the window that ends here
    if (first >= 0)
      out[first] = static_cast<float>((sum - (first > 0 ? squares[first - 1] : 0)) / static_cast<double>(window));
  }
}

}  // namespace jaxdali
