// Checks `color`: random matrices between one to four channels. Some samples have a wrong number of channels.
#include "ffi/color/color.cu"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

// One random batch: images of up to 40 x 40, once in thirty times with a wrong number of channels.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryColor(Random& random) {
  const DType type = kAllTypes[random(4)], result = random(2)   ? kAllTypes[random(3)]
                                                    : random(2) ? DType::kBF16
                                                                : DType::kF16;
  const int n = 1 + random(4), in_channels = 1 + random(4), out_channels = 1 + random(4);
  Shapes in, out;
  std::vector<float> matrix;
  for (int i = 0; i < n; i++) {
    const int height = random.Extent(40), width = random.Extent(40);
    in.push_back({height, width, random(30) ? in_channels : 5});
    out.push_back({height, width, out_channels});
    for (int k = 0; k < out_channels * (in_channels + 1); k++)
      matrix.push_back(type == DType::kI64 ? 1e-18f : static_cast<float>(random.Uniform(-2, 2)));
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  const ColorBatch b{memory.batch, /*out=*/{}, matrix.data(), in_channels, out_channels};
  Run("color", b, result, out, /*dense=*/false, kNoneBroken, random, LaunchColor, Color);
}

JAXDALI_CHECK(color, TryColor)

}  // namespace
}  // namespace jaxdali
