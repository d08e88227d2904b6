// Checks `warp`: affine maps of images and volumes, with coefficients from small integers to large scales.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/warp/warp.cu"

namespace jaxdali {
namespace {

// One random batch: images of up to 70 x 70, once in twenty times 500 x 500, or volumes.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryWarp(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kI32, DType::kF16, DType::kBF16, DType::kF32};
  DType type = kTypes[random(2) ? 0 : random(6)], out_type = random(2) ? type : DType::kF32;
  if (random(4) == 0) {
    out_type = type;
    type = DType::kF32;
  }
  const int dims = 2 + (random(4) == 0), first = random(2), n = 1 + random(4);
  const bool dense = random(3) == 0, has_fill = random(2) > 0;
  Shapes in, out;
  std::vector<double> map;
  std::vector<float> fill;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < first + dims + 1; d++) {
      const bool spatial = d >= first && d < first + dims;
      // Volumes are small; of an image's axes one in twenty is large.
      const int max_extent = spatial ? (dims == 3 ? 10 : random(20) ? 70 : 500) : 4;
      shape.push_back(d == first + dims && random(2) ? 3 : random.Extent(max_extent));
      result.push_back(spatial ? random.Extent(max_extent) : shape.back());
    }
    in.push_back(dense && i > 0 ? in[0] : shape);
    out.push_back(dense && i > 0 ? out[0] : result);
    const double max_coefficient = random(3) ? 1 : 3;  // the kernel works by tiles where neighbouring pixels stay close
    for (int s = 0; s < dims; s++) {
      for (int k = 0; k < dims; k++)
        map.push_back(random(3) ? random.Uniform(-max_coefficient, max_coefficient) : random(3) - 1);
      map.push_back(random.Uniform(-20, 60) * (random(20) ? 1 : std::pow(10, random.Uniform(0, 30))));
    }
    fill.push_back(static_cast<float>(random(200)));
  }
  Memory memory(type, in, dense, BrokenSample(random), random);
  WarpBatch b{memory.batch, /*out=*/{}, map.data(), fill.data(), dims, first, /*linear=*/random(3) > 0, has_fill};
  Run("warp", b, out_type, out, dense, kNoneBroken, random, LaunchWarp, Warp, /*exact=*/true);
}

JAXDALI_CHECK(warp, TryWarp)

}  // namespace
}  // namespace jaxdali
