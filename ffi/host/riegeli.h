// Chunks of Riegeli's files: reads them, and checks the checksums of chunks that hold one uncompressed record.
#ifndef JAXDALI_FFI_HOST_RIEGELI_H_
#define JAXDALI_FFI_HOST_RIEGELI_H_

#include <cstdint>

#include "ffi/common/thread_pool.h"
#include "ffi/host/files.h"
#include "ffi/host/highway_hash.h"

namespace jaxdali {

inline constexpr HashKey kRiegeliKey = {0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572};

inline constexpr int64_t kChunkHeader = 40;
inline constexpr int64_t kBlock = 1 << 16, kBlockHeader = 24;  // logical positions do not count block headers

// Like `ReadRanges`, but with logical positions.
void ReadBlocked(const FileTable& table, const int64_t* files, const int64_t* begins, int n, uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                 ThreadPool* pool);

// Parses entries of the table of chunks, messages {1: place, 2: bytes, 3: number of records}, into rows of three
// numbers. It parses the complete entries, at most `most`. end: no bytes follow `data`. Returns the number of rows, or
// -1 if the table is damaged. *used: the number of bytes parsed.
int64_t ParseChunkTable(const uint8_t* data, int64_t size, bool end, int64_t* rows, int64_t most, int64_t* used);

// The error found in a chunk.
enum ChunkError : int32_t { kGoodChunk, kHeaderUnread, kHeaderHash, kOtherChunk, kDataHash };

// Checks chunk i. Its header and the bytes between that and its record are head_sizes[i] bytes at heads + i * stride;
// its record is sizes[i] bytes at data + starts[i]. Sets error[i] unless it is already set.
void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RIEGELI_H_
