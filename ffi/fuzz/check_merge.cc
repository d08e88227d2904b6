// Checks `merge`: samples of random shapes, some of which don't fit the output.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/merge/merge.cu"

namespace jaxdali {
namespace {

// One random batch: samples, once in thirty times with another shape than their output.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryMerge(Random& random) {
  const DType type = kAllTypes[random(4)];
  const int rank = 1 + random(4), n = 1 + random(4);
  Shapes in, out;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape;
    for (int d = 0; d < rank; d++) shape.push_back(random.Extent(rank > 3 ? 9 : 40));
    in.push_back(shape);
    if (random(30) == 0) shape[0]++;
    out.push_back(shape);
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  MergeBatch b{memory.batch, /*out=*/{}};
  Run("merge", b, type, out, /*dense=*/false, kNoneBroken, random, LaunchMerge, Merge);
}

JAXDALI_CHECK(merge, TryMerge)

}  // namespace
}  // namespace jaxdali
