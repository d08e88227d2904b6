// Checks `jpeg_distortion`: images and short videos with random quantization tables.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/jpeg_distortion/jpeg_distortion.cu"

namespace jaxdali {
namespace {

// One random batch: images or videos of up to 50 x 50, once in thirty times with a wrong number of channels.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryJpegDistortion(Random& random) {
  const int n = 1 + random(4), rank = 3 + random(2);
  Shapes shapes;
  std::vector<int32_t> tables, first_unit;
  int units = 0;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape;
    if (rank == 4) shape.push_back(random.Extent(3));
    const int height = random.Extent(50), width = random.Extent(50);
    shape.insert(shape.end(), {height, width, random(30) ? 3 : 4});
    shapes.push_back(shape);
    for (int k = 0; k < 128; k++) tables.push_back(1 + random(255));
    first_unit.push_back(units);
    units += (rank == 4 ? shape[0] : 1) * ((height + 15) / 16) * ((width + 15) / 16);
  }
  Memory memory(DType::kU8, shapes, /*dense=*/false, BrokenSample(random), random);
  std::vector<float> scratch(static_cast<size_t>(units) * kMcuBytes / sizeof(float));
  const JpegDistortionBatch b{memory.batch,      /*out=*/{},     tables.data(),
                              first_unit.data(), scratch.data(), static_cast<int64_t>(scratch.size())};
  Run("jpeg_distortion", b, DType::kU8, shapes, /*dense=*/false, kNoneBroken, random, LaunchJpegDistortion,
      JpegDistortion);
}

JAXDALI_CHECK(jpeg_distortion, TryJpegDistortion)

}  // namespace
}  // namespace jaxdali
