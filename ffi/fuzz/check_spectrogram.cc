// Checks `spectrogram`. It has no CUDA kernel, so its versions for different vectors are compared with each other.
#include "ffi/common/simd.h"
#include "ffi/fuzz/check_kernels.h"
#include "ffi/spectrogram/spectrogram.h"

namespace jaxdali {
namespace {

// Runs the version with the shortest vectors on all samples, in place of a launch. Never an error.
const char* RunNarrowest(const SpectrogramBatch& b, const Samples& samples, void*) {
  for (int i = 0; i < samples.n; i++) {
    if (!samples.present[i])
      samples.status[i] = kOk;
    else
      samples.status[i] = b.in.valid(i) && b.out.valid(i) ? Spectrogram16(b, i) : kInternal;
  }
  return nullptr;
}

// One random batch: signals of up to 400 values.
// `random(k)` is a number below k, so it is 0 once in k times.
void TrySpectrogram(Random& random) {
  const int n = 1 + random(4), length = 1 + random(80), nfft = length + (random(2) ? 0 : random(60));
  const int step = 1 + random(40), filters = random(2) ? 0 : 1 + random(12), bins = nfft / 2 + 1, time = random(2);
  Shapes in_shapes, out_shapes;
  for (int i = 0; i < n; i++) {
    in_shapes.push_back({random.Extent(400)});
    // Mostly as many windows as the signal has; any number must stay inside the signal.
    const int times = random(5) ? in_shapes.back()[0] / step + 1 : random(100), rows = filters ? filters : bins;
    out_shapes.push_back(time == 1 ? std::vector<int>{rows, times} : std::vector<int>{times, rows});
  }
  std::vector<float> window, weights;
  std::vector<int32_t> first;
  for (int t = 0; t < length; t++) window.push_back(static_cast<float>(random.Uniform(0, 1)));
  for (int k = 0; filters && k < bins; k++) {
    first.push_back(random(filters));
    for (int j = 0; j < 2; j++) weights.push_back(static_cast<float>(random.Uniform(0, 1)));
  }
  Memory memory(DType::kF32, in_shapes, /*dense=*/false, BrokenSample(random), random);
  const SpectrogramBatch b{memory.batch,  /*out=*/{},     window.data(),
                           first.data(),  weights.data(), length,
                           step,          nfft,           random(2) ? length / 2 : 0,
                           filters,       time,           random(2) == 0,
                           random(2) == 0};
  const auto run_check = [&](auto kernel) {
    Run("spectrogram", b, DType::kF32, out_shapes, /*dense=*/false, kNoneBroken, random, RunNarrowest, kernel);
  };
  run_check(Spectrogram);
  // All machines take as many random numbers, and print the same checksums.
#if defined(__x86_64__)
  run_check(kHasSimd ? Spectrogram32 : Spectrogram);
#else
  run_check(Spectrogram);
#endif
}

JAXDALI_CHECK(spectrogram, TrySpectrogram)

}  // namespace
}  // namespace jaxdali
