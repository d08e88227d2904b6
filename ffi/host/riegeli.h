// Chunks of Riegeli's files: the checksums of those that hold one record as it is.
#ifndef JAXDALI_FFI_HOST_RIEGELI_H_
#define JAXDALI_FFI_HOST_RIEGELI_H_

#include <cstdint>

#include "ffi/common/thread_pool.h"
#include "ffi/host/highway_hash.h"

namespace jaxdali {

inline constexpr HashKey kRiegeliKey = {0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572};

inline constexpr int64_t kChunkHeader = 40;

// What is wrong with a chunk.
enum ChunkError : int32_t { kGoodChunk, kHeaderUnread, kHeaderHash, kOtherChunk, kDataHash };

// Chunk i: its header and what is between that and its record are head_sizes[i] bytes at heads + i * stride; its record
// is sizes[i] bytes at data + starts[i]. error[i]: of these, where it was kGoodChunk.
void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RIEGELI_H_
