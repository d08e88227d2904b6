// Chunks of Riegeli's files: the checksums of those that hold one record as it is.
#ifndef JAXDALI_FFI_HOST_RIEGELI_H_
#define JAXDALI_FFI_HOST_RIEGELI_H_

#include <cstdint>

#include "ffi/common/thread_pool.h"
#include "ffi/host/files.h"
#include "ffi/host/highway_hash.h"

namespace jaxdali {

inline constexpr HashKey kRiegeliKey = {0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572};

inline constexpr int64_t kChunkHeader = 40;
inline constexpr int64_t kBlock = 1 << 16, kBlockHeader = 24;  // which positions called logical do not count

// As `ReadRanges`, from logical positions on.
void ReadBlocked(const FileTable& table, const int64_t* files, const int64_t* begins, int n, uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                 ThreadPool* pool);

// Entries of the table of chunks, messages {1: place, 2: bytes, 3: number of records}, to rows of three numbers, as far
// as they are whole and there is room for `most`. end: nothing comes behind `data`. Returns how many they are, or -1
// where they are damaged; *used: their bytes.
int64_t ParseChunkTable(const uint8_t* data, int64_t size, bool end, int64_t* rows, int64_t most, int64_t* used);

// What is wrong with a chunk.
enum ChunkError : int32_t { kGoodChunk, kHeaderUnread, kHeaderHash, kOtherChunk, kDataHash };

// Chunk i: its header and what is between that and its record are head_sizes[i] bytes at heads + i * stride; its record
// is sizes[i] bytes at data + starts[i]. error[i]: of these, where it was kGoodChunk.
void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RIEGELI_H_
