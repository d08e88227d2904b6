// Sound in the host pass: signals at another sampling rate, and their power.
#ifndef JAXDALI_FFI_HOST_SIGNALS_H_
#define JAXDALI_FFI_HOST_SIGNALS_H_

#include <cstdint>

namespace jaxdali {

// A resampling filter: a symmetric function of the distance in old samples, as a table with linear interpolation.
struct ResamplingFilter {
  static constexpr int kPoints = 32;  // values per old sample
  static constexpr int kMostLobes = 64;

  // The size of a table: zeros at both ends, around the values for the distances -lobes ... lobes.
  static constexpr int64_t TableSize(int lobes) { return 2 * kPoints * lobes + 6; }

  int lobes;           // old samples on each side that the filter sees, at most kMostLobes
  const float* table;  // [TableSize(lobes)]; the value at the distance x has the index 1 + kPoints * (x + lobes)
};

// Resamples a signal x[n, channels] to out[length, channels] as DALI does: new sample i is at i * step among the old
// ones. Beyond the ends of the signal there are zeros. Results are equal to the bit whatever vectors the CPU has.
//   step: above 0; length * step is at most 2^60
void Resample(const float* x, int64_t n, int64_t channels, double step, const ResamplingFilter& filter, float* out,
              int64_t length);

// Resample as on CPUs without AVX2 or NEON, for the tests.
void ResampleAnywhere(const float* x, int64_t n, int64_t channels, double step, const ResamplingFilter& filter,
                      float* out, int64_t length);

// The mean power of each window of a signal: out[k], of n - window + 1, is the mean of the `window` squares from k on,
// the difference of two cumulative sums. These sums replace the squares.
//   window: 1 to n
void MeanPowers(double* squares, int64_t n, int64_t window, float* out);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_SIGNALS_H_
