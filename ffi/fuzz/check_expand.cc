// Checks `expand` (broadcasting): some axes have the extent 1 or are missing. Some extents fit neither way.
#include "ffi/expand/expand.cu"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

// One random batch: samples with missing axes and axes of extent 1, which are repeated. One axis in sixty fits neither
// way. `random(k)` is a number below k, so it is 0 once in k times.
void TryExpand(Random& random) {
  const DType type = kAllTypes[random(4)];
  const int rank = 1 + random(4), missing = random(rank), n = 1 + random(4);
  Shapes in, out;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      result.push_back(random.Extent(rank > 3 ? 9 : 40));
      if (d >= missing) shape.push_back(random(3) == 0 ? 1 : random(60) ? result.back() : 2);
    }
    in.push_back(shape);
    out.push_back(result);
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  ExpandBatch b{memory.batch, /*out=*/{}};
  Run("expand", b, type, out, /*dense=*/false, kNoneBroken, random, LaunchExpand, Expand);
}

JAXDALI_CHECK(expand, TryExpand)

}  // namespace
}  // namespace jaxdali
