// libstdc++'s std::shuffle and std::uniform_int_distribution, for a generator of 64 bits.
#include "ffi/host/shuffle.h"

#include <random>
#include <utility>

namespace jaxdali {
namespace {

__extension__ using Wide = unsigned __int128;

// A random number below n (Lemire, "Fast Random Integer Generation in an Interval", 2019).
uint64_t RandomBelow(uint64_t n, std::mt19937_64& bits) {
  Wide product = Wide{bits()} * n;
  if (static_cast<uint64_t>(product) < n) {
    // Draws whose lower half is below 2^64 mod n would make some results more likely, and are repeated.
    const uint64_t threshold = -n % n;
    while (static_cast<uint64_t>(product) < threshold) product = Wide{bits()} * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

// Shuffles order[0 .. n) as std::shuffle of GCC's library does: element i is swapped with a random one of 0 .. i. For
// n < 2^32, where (i + 1) * (i + 2) fits into 64 bits, so that one draw serves two swaps.
void Shuffle(int64_t* order, uint64_t n, std::mt19937_64& bits) {
  uint64_t i = 1;
  // An even n leaves an odd number of swaps, so the first one has its own draw.
  if (n % 2 == 0 && n > 0) std::swap(order[i++], order[RandomBelow(2, bits)]);
  for (; i < n; i += 2) {
    const uint64_t draw = RandomBelow((i + 1) * (i + 2), bits);
    std::swap(order[i], order[draw / (i + 2)]);
    std::swap(order[i + 1], order[draw % (i + 2)]);
  }
}

}  // namespace

// Shuffles order[0 .. n) once for each of the epochs first .. last.
void ShuffleEpochs(int64_t* order, int64_t n, uint64_t seed, int64_t first, int64_t last) {
  for (int64_t epoch = first; epoch <= last; epoch++) {
    std::mt19937_64 bits(seed + (static_cast<uint64_t>(epoch) << 32));
    Shuffle(order, static_cast<uint64_t>(n), bits);
  }
}

}  // namespace jaxdali
