// Checks `equalize`: planes in tiles, with and without a contrast limit, of values or of CIELab. The tables of Lab have
// random values, within their ranges.
#include "ffi/equalize/equalize.cu"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

// One random batch: planes of up to 60 x 60, rarely 300 x 300, which are counted in several parts.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryEqualize(Random& random) {
  const bool lab = random(3) == 0;
  const int n = 1 + random(4), height_axis = random(3), rank = height_axis + 2 + (lab ? 1 : random(2));
  const int tiles_y = 1 + random(4), tiles_x = 1 + random(4);
  Shapes shapes;
  std::vector<float> limit;
  std::vector<int32_t> first_table, tables;
  const bool large = random(20) == 0;  // a tile is counted in several parts
  int num_tables = 0;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape;
    int planes = 1;
    for (int d = 0; d < rank; d++) {
      const bool is_channel = d > height_axis + 1, is_spatial = d >= height_axis && !is_channel;
      shape.push_back(random.Extent(!is_spatial ? 4 : large ? 300 : 60));
      if (is_channel && lab && random(4)) shape.back() = 3;
      if (!is_spatial) planes *= shape.back();
    }
    shapes.push_back(shape);
    limit.push_back(random(2) ? 0 : static_cast<float>(random.Uniform(0, 5) * (random(10) ? 1 : 1e37)));
    first_table.push_back(num_tables);
    num_tables += planes * tiles_y * tiles_x;
  }
  for (int k = 0; k < Lab::kTables; k++)  // values in the tables' ranges
    tables.push_back(random(k < Lab::kLinear                 ? 2041
                            : k < Lab::kLinear + Lab::kRoot  ? 37000
                            : k < Lab::kTables - Lab::kGamma ? 16384
                                                             : 256));
  Memory memory(DType::kU8, shapes, /*dense=*/false, BrokenSample(random), random);
  const auto counts = static_cast<size_t>(memory.batch.capacity / EqualizeBatch::kElementsPerPart) * kBins;
  std::vector<float> scratch(counts + static_cast<size_t>(num_tables) * kBins / sizeof(float));
  const EqualizeBatch b{
      memory.batch, /*out=*/{}, limit.data(),   first_table.data(), lab ? tables.data() : nullptr,       height_axis,
      tiles_y,      tiles_x,    random(2) == 0, scratch.data(),     static_cast<int64_t>(scratch.size())};
  Run("equalize", b, DType::kU8, shapes, /*dense=*/false, kNoneBroken, random, LaunchEqualize, Equalize);
}

JAXDALI_CHECK(equalize, TryEqualize)

}  // namespace
}  // namespace jaxdali
