// Random numbers of samples. One counter gives two elements, as 128 bits are two doubles.
#include "ffi/host/philox.h"

#include <cmath>
#include <vector>

namespace jaxdali {
namespace {

// Batches with fewer random numbers are not worth waking other threads for.
constexpr int64_t kMinForThreads = 1 << 14;

// Writes the `size` random numbers of the sample (epoch, position): uniform in [0, 1), or normal.
void FillSample(uint64_t key, Distribution distribution, uint64_t epoch, uint64_t position, int64_t size, double* out) {
  // A counter has 128 bits: 64 for the pair of elements within the sample, 64 for the position. The epoch is hashed
  // into the key.
  uint64_t sample_key = StreamKey(key, epoch);
  for (int64_t j = 0; j < size; j += 2) {
    uint64_t pair = static_cast<uint64_t>(j) / 2;
    Philox4 r = Philox({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(position),
                        static_cast<uint32_t>(position >> 32)},
                       sample_key);
    double u = ToUnitInterval(r[0], r[1]), v = ToUnitInterval(r[2], r[3]);
    if (distribution == Distribution::kNormal) {
      // Box-Muller: two uniform numbers become two independent normal ones. 1 - u is in (0, 1], so its logarithm is
      // finite.
      double radius = std::sqrt(-2 * std::log(1 - u)), angle = 2 * 3.14159265358979323846 * v;
      u = radius * std::cos(angle);
      v = radius * std::sin(angle);
    }
    out[j] = u;
    // A sample of an odd size drops the second one of its last pair.
    if (j + 1 < size) out[j + 1] = v;
  }
}

}  // namespace

// The key of an operator's stream, a hash of both numbers.
uint64_t StreamKey(uint64_t seed, uint64_t stream) {
  // Philox itself is the hash. The constant in the upper half of the counter is beyond any sample's position.
  Philox4 r =
      Philox({static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32), 0x6A617864, 0xFFFFFFFF}, seed);
  return uint64_t{r[0]} << 32 | r[1];
}

// Writes the random numbers of n samples. Sample i is (epoch[i], position[i]); its sizes[i] numbers begin at
// out + starts[i]. They depend on nothing but the key and the sample. `pool`: null for this thread alone.
void Fill(uint64_t key, Distribution distribution, const int64_t* epoch, const int64_t* position, const int64_t* starts,
          const int64_t* sizes, int n, double* out, ThreadPool* pool) {
  auto fill_sample = [&](int i) {
    FillSample(key, distribution, static_cast<uint64_t>(epoch[i]), static_cast<uint64_t>(position[i]), sizes[i],
               out + starts[i]);
  };
  // The threads fill disjoint parts of `out`, so the order does not matter.
  int64_t total = 0;
  for (int i = 0; i < n; i++) total += sizes[i];
  if (pool != nullptr && n > 1 && total >= kMinForThreads) {
    pool->Run(n, fill_sample, LargestFirst(std::vector<int64_t>(sizes, sizes + n)));
  } else {
    for (int i = 0; i < n; i++) fill_sample(i);
  }
}

}  // namespace jaxdali
