// Checks `stencil`: all reductions and borders, windows along one to three axes, and the square ones that have sorting
// networks.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/stencil/stencil.cu"

namespace jaxdali {
namespace {

// One random batch: samples with windows of up to 80 taps, some of them far too large, or with square ones.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryStencil(Random& random) {
  const DType type = kAllTypes[random(3)], result = random(2) ? type : DType::kF32;
  const int n = 1 + random(4), axes = 1 + random(3), first = random(2), rank = first + axes + random(2);
  const int square = random(3) ? 0 : random(4) == 0 ? 15 + random(3) : 3 + 2 * random(2);  // 3 and 5 have networks
  const int max_taps = square ? square * square : 1 + random(80);
  const StencilReduction reduction = static_cast<StencilReduction>(random(static_cast<int>(StencilReduction::kCount)));
  const Border border = static_cast<Border>(random(static_cast<int>(Border::kCount)));
  Shapes shapes, out_shapes;
  std::vector<float> weights, fill;
  std::vector<int32_t> window, anchor;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, out;
    for (int d = 0; d < rank; d++) {
      shape.push_back(random.Extent(d < first || d >= first + axes ? 4 : axes == 3 ? 7 : 30));
      out.push_back(shape.back());
    }
    int taps = 1;
    for (int k = 0; k < axes; k++) {
      // Some extents are far too large, but only one per window: a median of volumes takes its time.
      window.push_back(square                   ? (k >= axes - 2 ? square : 1)
                       : random(50) || taps > 1 ? 1 + random(std::max(1, std::min(max_taps / taps, 12)))
                                                : random(3) * 40);
      taps *= std::max(window.back(), 1);
      anchor.push_back(random(window.back() + 2) - 1);
      if (random(4) == 0) out[static_cast<size_t>(first + k)] = random.Extent(20);
    }
    shapes.push_back(shape);
    out_shapes.push_back(out);
    fill.push_back(static_cast<float>(random.Uniform(-300, 300)));
    for (int k = 0; k < max_taps; k++) weights.push_back(static_cast<float>(random.Uniform(-1.0, 1.0) / max_taps));
  }
  Memory memory(type, shapes, /*dense=*/false, BrokenSample(random), random);
  const StencilBatch b{memory.batch, /*out=*/{}, weights.data(), window.data(), anchor.data(), fill.data(),
                       first,        axes,       max_taps,       reduction,     border};
  Run("stencil", b, result, out_shapes, /*dense=*/false, kNoneBroken, random, LaunchStencil, RunStencil);
}

JAXDALI_CHECK(stencil, TryStencil)

}  // namespace
}  // namespace jaxdali
