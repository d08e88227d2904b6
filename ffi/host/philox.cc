#include "ffi/host/philox.h"

#include <cmath>
#include <vector>

namespace jaxdali {
namespace {

// Batches with fewer random numbers are not worth waking other threads for.
constexpr int64_t kWorthThreads = 1 << 14;

void FillSample(uint64_t key, Distribution distribution, uint64_t epoch, uint64_t position, int64_t size, double* out) {
  // A counter has 128 bits: 64 for the pair of elements within the sample, 64 for the position. The epoch is hashed
  // into the key.
  uint64_t k = StreamKey(key, epoch);
  for (int64_t j = 0; j < size; j += 2) {
    uint64_t c = static_cast<uint64_t>(j) / 2;
    Philox4 r = Philox({static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), static_cast<uint32_t>(position),
                        static_cast<uint32_t>(position >> 32)},
                       k);
    double u = ToUnit(r[0], r[1]), v = ToUnit(r[2], r[3]);
    if (distribution == Distribution::kNormal) {  // Box-Muller; 1 - u is in (0, 1], so its logarithm is finite
      double radius = std::sqrt(-2 * std::log(1 - u)), angle = 2 * 3.14159265358979323846 * v;
      u = radius * std::cos(angle);
      v = radius * std::sin(angle);
    }
    out[j] = u;
    if (j + 1 < size) out[j + 1] = v;
  }
}

}  // namespace

uint64_t StreamKey(uint64_t seed, uint64_t stream) {
  // Philox itself is the hash. The constant in the upper half of the counter is beyond any sample's position.
  Philox4 r =
      Philox({static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32), 0x6A617864, 0xFFFFFFFF}, seed);
  return uint64_t{r[0]} << 32 | r[1];
}

void Fill(uint64_t key, Distribution distribution, const int64_t* epoch, const int64_t* position, const int64_t* starts,
          const int64_t* sizes, int n, double* out, ThreadPool* pool) {
  auto one = [&](int i) {
    FillSample(key, distribution, static_cast<uint64_t>(epoch[i]), static_cast<uint64_t>(position[i]), sizes[i],
               out + starts[i]);
  };
  int64_t total = 0;
  for (int i = 0; i < n; i++) total += sizes[i];
  if (pool != nullptr && n > 1 && total >= kWorthThreads) {
    pool->Run(n, one, LargestFirst(std::vector<int64_t>(sizes, sizes + n)));
  } else {
    for (int i = 0; i < n; i++) one(i);
  }
}

}  // namespace jaxdali
