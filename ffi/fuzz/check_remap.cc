// Checks `remap`: all kinds of points (given maps, projective, water, ...), borders and ways to sample.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/remap/remap.cu"

namespace jaxdali {
namespace {

// Integers and quarters, so that rounding never changes which pixel is nearest.
double Quarter(Random& random, int max_value) { return (random(8 * max_value) - 4 * max_value) / 4.0 + 0.125; }

// One random batch: images or videos of up to 70 x 70, rarely with a wrong number of channels or values of the map
// missing. `random(k)` is a number below k, so it is 0 once in k times.
void TryRemap(Random& random) {
  constexpr DType kTypes[] = {DType::kU8,   DType::kU16, DType::kI16, DType::kF16,
                              DType::kBF16, DType::kF32, DType::kI32};
  const Points points = static_cast<Points>(random(6));
  const Interp sampling = static_cast<Interp>(random(3));
  const DType type = kTypes[random(sampling == Interp::kNN ? 7 : 6)];
  const int n = 1 + random(4), first = random(2), ndim = first + 2 + random(2);
  const bool dense = random(3) == 0, is_given = points == Points::kGiven, per_channel = ndim == first + 3 && random(2);
  const int channels = 1 + random(4), fills = per_channel ? channels : 1;
  Shapes in, out;
  std::vector<double> numbers;
  std::vector<float> fill, map[2];
  std::vector<int32_t> applied, offsets;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < ndim; d++) {
      const bool is_spatial = d >= first && d < first + 2;
      shape.push_back(is_spatial   ? random.Extent(70)
                      : d < first  ? random.Extent(3)
                      : random(20) ? channels
                                   : channels + 1);
      result.push_back(is_spatial ? random.Extent(70) : shape.back());
    }
    in.push_back(dense && i > 0 ? in[0] : shape);
    out.push_back(dense && i > 0 ? out[0] : result);
    applied.push_back(random(4) > 0);
    for (int c = 0; c < fills; c++) fill.push_back(static_cast<float>(random(200)));
    const int frames = first && random(2) ? out[static_cast<size_t>(i)][0] : 1;
    switch (points) {
      case Points::kGiven:
        numbers.insert(numbers.end(), {static_cast<double>(frames), random(2) / 2.0});
        for (auto& m : map) {
          if (!dense) m.resize((m.size() + kAlignment - 1) / kAlignment * kAlignment);
          if (&m == map && !dense) offsets.push_back(static_cast<int32_t>(m.size()) / kAlignment);
          const auto& o = out[static_cast<size_t>(i)];
          for (int64_t k = int64_t{frames} * o[static_cast<size_t>(first)] * o[static_cast<size_t>(first) + 1]; k > 0;
               k--)
            m.push_back(random(50) ? static_cast<float>(random.Uniform(-9, 40)) : random(2) ? NAN : 1e30f);
        }
        break;
      case Points::kProjective:
        for (int k = 0; k < 9; k++) numbers.push_back(k < 6 ? Quarter(random, k % 3 == 2 ? 20 : 1) : k < 8 ? 0 : 1);
        break;
      case Points::kSphere:
        break;
      case Points::kWater:
        for (int k = 0; k < 6; k++) numbers.push_back(random.Uniform(0, k % 3 == 0 ? 20 : 1));
        break;
      case Points::kJitter:
        numbers.insert(numbers.end(), {random.Uniform(0, 1), 1.0 + random(9)});
        break;
      case Points::kGrid:
        for (int k = 0; k < 5; k++) numbers.push_back(random.Uniform(-1, 1));
        break;
    }
  }
  Memory memory(type, in, dense, BrokenSample(random), random);
  RemapBatch b{memory.batch,
               /*out=*/{},
               {map[0].data(), map[1].data()},
               {},
               {},
               numbers.data(),
               fill.data(),
               applied.data(),
               fills,
               first,
               points,
               sampling,
               static_cast<Border>(random(5))};
  for (int s = 0; s < 2; s++) {
    b.map_offsets[s] = dense || !is_given ? nullptr : offsets.data();
    b.map_capacity[s] = static_cast<int64_t>(map[s].size()) - (is_given && random(10) == 0);
  }
  Run("remap", b, type, out, dense, kNoneBroken, random, LaunchRemap, Remap);
}

JAXDALI_CHECK(remap, TryRemap)

}  // namespace
}  // namespace jaxdali
