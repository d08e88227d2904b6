// Checks `paste`: random regions from one or two inputs, of images or frames. Some regions reach outside, and some have
// no source.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/paste/paste.cu"

namespace jaxdali {
namespace {

// One random batch: images with up to three regions each, rarely with another number of channels or a region outside.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryPaste(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kI32, DType::kF32};
  const DType type = kTypes[random(4)], result = random(2) ? type : kTypes[random(4)];
  const int n = 1 + random(4), inputs = 1 + random(2), first = random(2), channels = 1 + random(4),
            max_regions = random(4);
  const int frames = 1 + random(2);
  const bool dense = random(3) == 0;
  Shapes in, out;
  std::vector<PasteRegion> regions;
  for (int i = 0; i < n * inputs; i++) {
    std::vector<int> shape{random.Extent(40), random.Extent(40), random(40) ? channels : channels + 1};
    if (first) shape.insert(shape.begin(), random(40) ? frames : frames + 1);
    in.push_back(dense && i > 0 ? in[0] : shape);
  }
  for (int i = 0; i < n; i++) {
    std::vector<int> shape{random.Extent(60), random.Extent(60), channels};
    if (first) shape.insert(shape.begin(), frames);
    out.push_back(dense && i > 0 ? out[0] : shape);
    for (int k = 0; k < max_regions; k++) {
      // A random source; extents and places are set below, so that the region lies inside of both.
      PasteRegion r{random(n * inputs), 0, 0, 0, 0, 0, 0};
      const auto &source = in[static_cast<size_t>(r.source)], &destination = out.back();
      const int h = std::min(source[static_cast<size_t>(first)], destination[static_cast<size_t>(first)]);
      const int w = std::min(source[static_cast<size_t>(first) + 1], destination[static_cast<size_t>(first) + 1]);
      r.height = random(h + 1);
      r.width = random(w + 1);
      r.in_y = random(source[static_cast<size_t>(first)] - r.height + 1);
      r.in_x = random(source[static_cast<size_t>(first) + 1] - r.width + 1);
      r.out_y = random(destination[static_cast<size_t>(first)] - r.height + 1) + (random(60) == 0 ? 100 : 0);
      r.out_x = random(destination[static_cast<size_t>(first) + 1] - r.width + 1);
      if (random(20) == 0) r.source = -1;
      regions.push_back(r);
    }
  }
  Memory memory(type, in, dense, BrokenSample(random), random);
  const PasteBatch b{memory.batch, /*out=*/{}, regions.data(), max_regions, first};
  Run("paste", b, result, out, dense, kNoneBroken, random, LaunchPaste, Paste);
}

JAXDALI_CHECK(paste, TryPaste)

}  // namespace
}  // namespace jaxdali
