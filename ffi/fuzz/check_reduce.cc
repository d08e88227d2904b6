// Checks `reduce`: all sets of axes and all reductions, with and without a given center.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/reduce/reduce.cu"

namespace jaxdali {
namespace {

// One random batch: samples reduced along random axes, once in sixty axes with a wrong extent of the output.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryReduce(Random& random) {
  const DType type = kAllTypes[random(3)];
  const int n = 1 + random(4), rank = 1 + random(4);
  const auto axes = static_cast<unsigned>(random(1 << rank));
  const auto reduction = static_cast<Reduction>(random(4));
  Shapes in, out;
  int64_t capacity = 0;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    int64_t size = 1;
    for (int d = 0; d < rank; d++) {
      const int max_extent = rank > 3 ? 9 : rank == 1 && random(3) == 0 ? 40000 : random(4) ? 40 : 150;
      shape.push_back(d == rank - 1 && random(2) ? 3 : random.Extent(max_extent));
      if (axes >> d & 1) continue;
      result.push_back(random(60) ? shape.back() : 2);
      size *= result.back();
    }
    if (result.empty()) result.push_back(1);
    in.push_back(shape);
    out.push_back(result);
    capacity += size + kAlignment;
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  std::vector<double> center;
  for (int64_t i = 0; i < capacity; i++) center.push_back(random.Uniform(-9, 9));
  std::vector<double> parts(static_cast<size_t>(memory.batch.capacity / ReduceBatch::kElementsPerPart));
  const ReduceBatch b{memory.batch,
                      /*out=*/{},   random(2) ? center.data() : nullptr,    reduction,
                      axes,         reinterpret_cast<float*>(parts.data()), static_cast<int64_t>(2 * parts.size())};
  Run("reduce", b, DType::kF32, out, /*dense=*/false, kNoneBroken, random, LaunchReduce, Reduce);
}

JAXDALI_CHECK(reduce, TryReduce)

}  // namespace
}  // namespace jaxdali
