// Checks the resampling of signals in the host pass: its versions for different vectors are compared with each other.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/host/signals.h"

namespace jaxdali {
namespace {

// One random signal of up to 3,000 samples, at a rate from a 3,000th to 50 times of its own.
void TryResample(Random& random) {
  const int n = random.Extent(3000), channels = 1 + random(3), lobes = 1 + random(ResamplingFilter::kMostLobes);
  const int length = random.Extent(600);
  // Often a whole number. Mostly the result ends with the signal, sometimes far behind it or before.
  double step = random(3) ? random.Uniform(0.02, 4) : 1 + random(4);
  if (random(4) == 0) step = std::max(n, 1) / (random.Uniform(0.5, 2) * std::max(length, 1));
  const auto values = [&](int64_t count) {
    std::vector<float> x(static_cast<size_t>(count));
    for (float& v : x) v = static_cast<float>(random.Uniform(-1, 1));
    return x;
  };
  const std::vector<float> x = values(int64_t{n} * channels), table = values(ResamplingFilter::TableSize(lobes));
  const ResamplingFilter filter{lobes, table.data()};
  std::vector<float> out = values(int64_t{length} * channels), expected = values(int64_t{length} * channels);
  Resample(x.data(), n, channels, step, filter, out.data(), length);
  ResampleAnywhere(x.data(), n, channels, step, filter, expected.data(), length);
  for (size_t i = 0; i < out.size(); i++)
    if (out[i] != expected[i]) Fail("resample", static_cast<int>(i), "element", out[i], expected[i]);
  Checksums()["signals, floats"].Add(reinterpret_cast<const uint8_t*>(expected.data()),
                                     static_cast<int64_t>(expected.size() * sizeof(float)));
}

JAXDALI_CHECK(signals, TryResample)

}  // namespace
}  // namespace jaxdali
