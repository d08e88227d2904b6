// Checks `filter`: separable windows along one to three axes. Some windows have more taps than they may.
#include "ffi/filter/filter.cu"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

// One random batch: samples with windows of up to 24 taps; once in thirty axes there is a tap too many.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryFilter(Random& random) {
  const DType type = kAllTypes[random(3)], result = random(2) ? type : DType::kF32;
  const int n = 1 + random(4), axes = 1 + random(3), first = random(2), rank = first + axes + random(2),
            max_taps = random(4) ? 1 + random(12) : 17 + random(8);
  Shapes shapes;
  std::vector<float> window;
  std::vector<int32_t> taps;
  int64_t capacity = 0;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape;
    int64_t size = 1;
    for (int d = 0; d < rank; d++) {
      shape.push_back(random.Extent(d < first ? 4 : d >= first + axes ? 40 : axes == 3 ? 9 : 60));
      size *= shape.back();
    }
    shapes.push_back(shape);
    capacity += size + kAlignment;
    for (int k = 0; k < axes; k++) {
      taps.push_back(random(30) ? 1 + random(max_taps) : max_taps + 1);
      for (int t = 0; t < max_taps; t++) window.push_back(static_cast<float>(random.Uniform(0, 1.0 / max_taps)));
    }
  }
  Memory memory(type, shapes, /*dense=*/false, BrokenSample(random), random);
  std::vector<float> scratch(static_cast<size_t>(2 * capacity));
  const FilterBatch b{memory.batch, /*out=*/{}, window.data(),  taps.data(), first,
                      axes,         max_taps,   scratch.data(), 2 * capacity};
  Run("filter", b, result, shapes, /*dense=*/false, kNoneBroken, random, LaunchFilter, Filter);
}

JAXDALI_CHECK(filter, TryFilter)

}  // namespace
}  // namespace jaxdali
