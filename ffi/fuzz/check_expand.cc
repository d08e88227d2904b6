// Checks `expand` (broadcasting): some axes have the extent 1 or are missing. Some extents fit neither way.
#include "ffi/expand/expand.cu"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

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
  Memory memory(type, in, false, random(10) ? -1 : 0, random);
  ExpandBatch b{memory.batch, {}};
  Run("expand", b, type, out, false, -1, random, LaunchExpand, Expand);
}

JAXDALI_CHECK(expand, TryExpand)

}  // namespace
}  // namespace jaxdali
