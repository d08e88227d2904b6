// Checks `resize`: one to three axes, all filters, regions that reach outside or are reversed.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/resize/resize.cu"

namespace jaxdali {
namespace {

// One random batch: samples resized along one to three axes, once in twenty along large ones.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryResize(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kU16, DType::kF16, DType::kBF16, DType::kF32};
  const DType type = kTypes[random(6)], out_type = random(2) ? type : kTypes[3 + random(3)];
  const int axes = 1 + random(3), first = random(2), rank = first + axes + random(2), n = 1 + random(4);
  const bool dense = random(3) == 0;
  Shapes in, out;
  std::vector<float> roi;
  std::vector<int32_t> filters;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      const bool is_resized = d >= first && d < first + axes;
      // Volumes are small. Of axes that are resized one in twenty is large, and of channels one in ten.
      const int max_extent = axes == 3    ? 12
                             : is_resized ? (random(20) ? 60 : 900)
                             : d < first  ? 3
                             : random(10) ? 5
                                          : 300;
      shape.push_back(random.Extent(max_extent));
      result.push_back(is_resized ? random.Extent(max_extent) : shape.back());
    }
    in.push_back(dense && i > 0 ? in[0] : shape);
    out.push_back(dense && i > 0 ? out[0] : result);
    for (int d = first; d < first + axes; d++) {
      const std::pair<float, float> interval = random.Interval(in.back()[static_cast<size_t>(d)]);
      roi.insert(roi.end(), {interval.first, interval.second});
    }
    filters.push_back(random(6));
    filters.push_back(random(3) ? filters.back() : random(6));
  }
  Memory memory(type, in, dense, BrokenSample(random), random);
  ResizeBatch b{memory.batch, /*out=*/{}, roi.data(), filters.data(), first, axes, /*antialias=*/random(4) > 0};
  Run("resize", b, out_type, out, dense, kNoneBroken, random, LaunchResize, Resize);
}

JAXDALI_CHECK(resize, TryResize)

}  // namespace
}  // namespace jaxdali
