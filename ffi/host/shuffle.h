// Shuffles like DALI: std::shuffle of GCC's library with std::mt19937_64. It is implemented here because the standard
// leaves the draws and the order of the swaps to each library.
#ifndef JAXDALI_FFI_HOST_SHUFFLE_H_
#define JAXDALI_FFI_HOST_SHUFFLE_H_

#include <cstdint>

namespace jaxdali {

// Shuffles order[0 .. n) once for each of the epochs first .. last. Each epoch has its own generator, seeded by seed
// and epoch.
void ShuffleEpochs(int64_t* order, int64_t n, uint64_t seed, int64_t first, int64_t last);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_SHUFFLE_H_
