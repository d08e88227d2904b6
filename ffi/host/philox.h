// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): random numbers as a function of
// (key, counter), and the distributions of random.*. Since no state goes from one number to the next, any sample of any
// epoch can be computed alone, in any thread.
#ifndef JAXDALI_FFI_HOST_PHILOX_H_
#define JAXDALI_FFI_HOST_PHILOX_H_

#include <array>
#include <cstdint>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

using Philox4 = std::array<uint32_t, 4>;

// Encrypts a counter of 128 bits by ten rounds. Multipliers and the key's increments are those of the paper; the latter
// come from the golden ratio and the square root of 3.
inline Philox4 Philox(Philox4 counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t product0 = uint64_t{0xD2511F53} * counter[0], product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(product0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// 53 random bits as a double in [0, 1).
inline double ToUnitInterval(uint32_t hi, uint32_t lo) {
  return static_cast<double>((uint64_t{hi} << 32 | lo) >> 11) * 0x1p-53;
}

// kUnit: uniform in [0, 1). kNormal: mean 0, standard deviation 1.
enum class Distribution : int32_t { kUnit = 0, kNormal = 1 };

// The key of an operator's stream, a hash of (seed, stream). Streams of one seed and seeds of one stream give different
// keys.
uint64_t StreamKey(uint64_t seed, uint64_t stream);

// Writes the numbers of sample (epoch[i], position[i]) to out[starts[i] + j], j < sizes[i], as doubles: uniform in [0,
// 1), or normal with mean 0 and standard deviation 1. Element j is a function of (key, epoch, position, j) alone.
void Fill(uint64_t key, Distribution distribution, const int64_t* epoch, const int64_t* position, const int64_t* starts,
          const int64_t* sizes, int n, double* out, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_PHILOX_H_
