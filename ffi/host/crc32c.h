// CRC-32C, the checksum of TFRecord. By SSE4.2's instruction on x86-64, by a table of bytes elsewhere.
#ifndef JAXDALI_FFI_HOST_CRC32C_H_
#define JAXDALI_FFI_HOST_CRC32C_H_

#include <cstdint>

namespace jaxdali {

// CRC-32C (Castagnoli) of bytes that follow those with the checksum `crc` (0 for the first ones).
uint32_t Crc32c(uint32_t crc, const uint8_t* data, int64_t size);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_CRC32C_H_
