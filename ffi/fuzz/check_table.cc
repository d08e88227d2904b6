// Checks `table`: look-up tables of bytes, one for all channels or one for each.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/table/table.cu"

namespace jaxdali {
namespace {

// One random batch: images with tables of bytes, once in thirty times with a wrong number of channels or another
// height. `random(k)` is a number below k, so it is 0 once in k times.
void TryTable(Random& random) {
  const int n = 1 + random(4), channels = 1 + random(4), tables = random(2) ? channels : 1;
  Shapes in, out;
  std::vector<uint8_t> table;
  for (int i = 0; i < n; i++) {
    in.push_back({random.Extent(40), random.Extent(40), random(30) ? channels : channels + 1});
    out.push_back(in.back());
    if (random(30) == 0) out.back()[0]++;
    for (int k = 0; k < 256 * tables; k++) table.push_back(static_cast<uint8_t>(random(256)));
  }
  Memory memory(DType::kU8, in, /*dense=*/false, BrokenSample(random), random);
  const TableBatch b{memory.batch, /*out=*/{}, table.data(), tables};
  Run("table", b, DType::kU8, out, /*dense=*/false, kNoneBroken, random, LaunchTable, Table);
}

JAXDALI_CHECK(table, TryTable)

}  // namespace
}  // namespace jaxdali
