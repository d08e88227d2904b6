// Checksums of results that the sanitizer programs print. They are equal on every machine, whatever its vectors.
#ifndef JAXDALI_FFI_FUZZ_CHECKSUM_H_
#define JAXDALI_FFI_FUZZ_CHECKSUM_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace jaxdali {

class Checksum {  // FNV-1a of 64 bits, with its prime and its offset basis
 public:
  void Add(const uint8_t* bytes, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum_ = (sum_ ^ bytes[i]) * 0x100000001B3;
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum_));
    return digits;
  }

 private:
  uint64_t sum_ = 0xCBF29CE484222325;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_CHECKSUM_H_
