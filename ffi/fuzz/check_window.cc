// Checks `window`: slices with steps, mirrored or permuted axes, fills, and scaling. Some windows reach outside.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/window/window.cu"

namespace jaxdali {
namespace {

// One random batch: samples of which every axis has a slice, once in sixty axes one that may reach outside.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryWindow(Random& random) {
  const DType type = kAllTypes[random(4)];
  const int rank = 1 + random(5), n = 1 + random(4);
  Shapes in, out;
  std::vector<int32_t> start, step, extent;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      const int size = random(3) ? random.Extent(rank > 3 ? 9 : 200) : 3;
      const bool is_whole = random(3) == 0;
      const int stride = is_whole ? 1 : 1 + (random(3) == 0), num_taken = is_whole ? size
                                                                          : size == 0
                                                                              ? 0
                                                                              : 1 + random((size - 1) / stride + 1);
      int begin = size == 0 || is_whole ? 0 : random(size - (num_taken - 1) * stride);
      const bool is_mirrored = num_taken > 0 && random(4) == 0;
      if (is_mirrored) begin += (num_taken - 1) * stride;
      if (random(60) == 0) begin += 2;  // may reach outside
      shape.push_back(size);
      result.push_back(num_taken);
      start.push_back(begin);
      step.push_back(is_mirrored ? -stride : stride);
      extent.push_back(num_taken);
    }
    in.push_back(shape);
    out.push_back(result);
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  WindowBatch b{memory.batch, /*out=*/{}, start.data(), step.data(), extent.data()};
  b.channel = rank - 1;
  b.past_caches = random(2);
  for (int d = 0; d < rank; d++) b.permutation[d] = d;
  DType result = type;
  std::vector<float> fill, scale;
  if (random(2)) {  // not a mere copy
    const DType results[] = {DType::kU8, DType::kI16, DType::kF32, DType::kF16, DType::kBF16};
    result = results[random(5)];
    b.fills = random(3);
    b.scales = type == DType::kI64 || type != result ? 1 + random(3) : random(3);
    for (int i = 0; i < 4 * n; i++)
      fill.push_back(static_cast<float>(random(9))), scale.push_back(static_cast<float>(random.Uniform(-2, 2)));
    b.fill = fill.data();
    b.scale = scale.data();
    b.offset = scale.data();
    std::shuffle(b.permutation, b.permutation + rank, std::minstd_rand(static_cast<unsigned>(random(1000))));
    Shapes permuted = out;
    for (size_t i = 0; i < out.size(); i++)
      for (int d = 0; d < rank; d++)
        permuted[i][static_cast<size_t>(d)] = out[i][static_cast<size_t>(b.permutation[d])];
    out = permuted;
  }
  Run("window", b, result, out, /*dense=*/false, kNoneBroken, random, LaunchWindow, Window);
}

JAXDALI_CHECK(window, TryWindow)

}  // namespace
}  // namespace jaxdali
