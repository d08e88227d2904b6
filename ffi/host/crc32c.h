#ifndef JAXDALI_FFI_HOST_CRC32C_H_
#define JAXDALI_FFI_HOST_CRC32C_H_

#include <cstdint>

namespace jaxdali {

// CRC-32C (Castagnoli) of more bytes after those whose checksum is `crc` (at first 0).
uint32_t Crc32c(uint32_t crc, const uint8_t* data, int64_t size);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_CRC32C_H_
