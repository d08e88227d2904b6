// Chunks of Riegeli's files (github.com/google/riegeli, doc/riegeli_records_file_format.md), which ArrayRecord is built
// on: reads them, and checks the checksums of chunks that hold one uncompressed record.
//
// A file is divided into blocks of 64 KB, each with a header of 24 bytes, which may interrupt a chunk anywhere. A chunk
// has a header of 40 bytes: its checksum, the size and the checksum of its data, and the kind and number of its
// records.
#ifndef JAXDALI_FFI_HOST_RIEGELI_H_
#define JAXDALI_FFI_HOST_RIEGELI_H_

#include <cstdint>

#include "ffi/common/thread_pool.h"
#include "ffi/host/files.h"
#include "ffi/host/highway_hash.h"

namespace jaxdali {

// The ASCII text "Riegeli/records\n", twice, as little-endian words.
inline constexpr HashKey kRiegeliKey = {0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572};

inline constexpr int64_t kChunkHeader = 40;
inline constexpr int64_t kBlock = 1 << 16, kBlockHeader = 24;  // logical positions do not count block headers

// Like `ReadRanges`, but with logical positions.
void ReadBlocked(const FileTable& table, const int64_t* files, const int64_t* begins, int n, uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                 ThreadPool* pool);

// Parses entries of the table of chunks, messages {1: place, 2: bytes, 3: number of records}, into rows of three
// numbers. It parses the complete entries, at most `max_rows`. is_end: no bytes follow `data`. Returns the number of
// rows, or -1 if the table is damaged. *num_used: the number of bytes parsed.
int64_t ParseChunkTable(const uint8_t* data, int64_t size, bool is_end, int64_t* rows, int64_t max_rows,
                        int64_t* num_used);

// The error found in a chunk. kOtherChunk: it is not one uncompressed record of the expected size.
enum ChunkError : int32_t { kGoodChunk, kHeaderUnread, kHeaderHash, kOtherChunk, kDataHash };

// Checks chunk i. Its header and the bytes between that and its record are head_sizes[i] bytes at heads + i * stride;
// its record is sizes[i] bytes at data + starts[i]. Sets error[i], a ChunkError, unless it is already set.
void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RIEGELI_H_
