// HighwayHash of 64 bits (Alakuijala, Cox, Wassenberg: "Fast keyed hash/pseudo-random function using SIMD multiply and
// permute", 2016), which Riegeli's files use as checksums.
#ifndef JAXDALI_FFI_HOST_HIGHWAY_HASH_H_
#define JAXDALI_FFI_HOST_HIGHWAY_HASH_H_

#include <array>
#include <cstdint>

namespace jaxdali {

using HashKey = std::array<uint64_t, 4>;

// Hashes bytes that come in several parts.
class HighwayHash {
 public:
  explicit HighwayHash(const HashKey& key);
  void Append(const uint8_t* data, int64_t size);
  uint64_t Finish();  // call once

  struct State {
    alignas(32) uint64_t v0[4], v1[4], mul0[4], mul1[4];
  };

 private:
  State state_;
  uint8_t pending_[32];  // bytes that do not fill a packet of 32 yet
  int num_pending_ = 0;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_HIGHWAY_HASH_H_
