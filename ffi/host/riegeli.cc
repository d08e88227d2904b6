// Offsets in a chunk's table and in records are logical positions, which skip the headers of blocks. ReadBlocked maps
// them to those of the file.
#include "ffi/host/riegeli.h"

#include <algorithm>
#include <vector>

#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

constexpr int64_t kBlockData = kBlock - kBlockHeader;  // bytes of a block after its header

// Reads a varint at `offset`, a number of at most 63 bits. Returns the offset after it. 0: the data end within it; -1:
// it is invalid.
int64_t Varint(const uint8_t* data, int64_t size, int64_t offset, int64_t* x) {
  uint64_t value = 0;
  for (int shift = 0; offset < size; shift += 7, offset++) {
    if (shift > 56) return -1;
    value |= uint64_t{data[offset] & 0x7Fu} << shift;
    if (data[offset] < 0x80) {
      *x = static_cast<int64_t>(value);
      return offset + 1;
    }
  }
  return 0;
}

}  // namespace

// Reads the logical bytes from begins[i] on of file files[i], sizes[i] of them, to data + starts[i]. They skip the
// header at the start of each block of the file. Sets error[i] as ReadRanges does.
void ReadBlocked(const FileTable& table, const int64_t* files, const int64_t* begins, int n, uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                 ThreadPool* pool) {
  std::vector<FileRange> ranges;
  ranges.reserve(2 * static_cast<size_t>(n));
  for (int i = 0; i < n; i++) {
    // A block has more bytes of the file than of data, so a range beyond its size is outside, too.
    error[i] = begins[i] > file_sizes[files[i]] - sizes[i] ? kSizeChanged : 0;
    if (error[i] != 0) continue;
    // A range of logical positions becomes one range of the file for each block that it touches.
    for (int64_t done = 0; done < sizes[i];) {
      const int64_t position = begins[i] + done, offset_in_block = position % kBlockData,
                    count = std::min(kBlockData - offset_in_block, sizes[i] - done);
      ranges.push_back({files[i], position / kBlockData * kBlock + kBlockHeader + offset_in_block, count,
                        data + starts[i] + done, i});
      done += count;
    }
  }
  ReadRanges(table, &ranges, file_sizes, pool);
  for (const FileRange& r : ranges)
    if (r.error != 0) error[r.id] = r.error;
}

// Parses entries {1: place, 2: bytes, 3: number of records} of the table of chunks into rows of three numbers, at most
// `max_rows`. is_end: no bytes follow `data`; otherwise an incomplete entry is left, and *num_used ends before it.
// Returns the number of rows; -1: the table is damaged.
int64_t ParseChunkTable(const uint8_t* data, int64_t size, bool is_end, int64_t* rows, int64_t max_rows,
                        int64_t* num_used) {
  int64_t n = 0;  // rows so far
  *num_used = 0;
  while (*num_used < size && n < max_rows) {
    int64_t row[3] = {0, 0, 0}, offset = *num_used, tag = 0, x = 0;
    for (bool is_first = true;; is_first = false) {
      const int64_t value_offset = offset == size ? 0 : Varint(data, size, offset, &tag);
      if (value_offset < 0) return -1;
      if (value_offset == 0) {  // the end, or a part of a number
        if (!is_end) return n;
        if (offset < size || is_first) return -1;
        break;
      }
      // Each entry begins with its place (tag 8), which is never 0 and so never left out. Another place ends the entry.
      if (is_first != (tag == 8)) {
        if (is_first) return -1;
        break;
      }
      // Tags: the field's number times 8, and 0 for a varint. 8, 16, 24 are the fields 1, 2, 3.
      if (tag != 8 && tag != 16 && tag != 24) return -1;
      const int64_t next = Varint(data, size, value_offset, &x);
      if (next < 0 || (next == 0 && is_end)) return -1;
      if (next == 0) return n;
      row[tag / 8 - 1] = x;
      offset = next;
    }
    std::copy_n(row, 3, rows + 3 * n++);
    *num_used = offset;
  }
  return n;
}

// Checks the hashes of chunks of one record each. Chunk i begins with head_sizes[i] bytes at heads + i * stride: its
// header, and what precedes the record; the record is at data + starts[i]. Sets error[i], unless it is set already.
void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool) {
  pool->Run(n, [&](int i) {
    if (error[i] != 0) return;
    const uint8_t* head = heads + i * stride;
    HighwayHash header(kRiegeliKey);
    // The header has five words: hash of the other four, size of the data, hash of the data, then the kind of chunk
    // ('r': records) in the lowest byte below the number of records, here 1, and the decoded size.
    header.Append(head + 8, kChunkHeader - 8);
    if (header.Finish() != LittleEndian(head, 8)) {
      error[i] = kHeaderHash;
      return;
    }
    const int64_t gap_size = head_sizes[i] - kChunkHeader;
    if (LittleEndian(head + 8, 8) != static_cast<uint64_t>(gap_size + sizes[i]) ||
        LittleEndian(head + 24, 8) != ('r' | 1 << 8)) {
      error[i] = kOtherChunk;
      return;
    }
    HighwayHash hash(kRiegeliKey);
    // The data's checksum covers the bytes before the record too: the sizes of records.
    hash.Append(head + kChunkHeader, gap_size);
    hash.Append(data + starts[i], sizes[i]);
    if (hash.Finish() != LittleEndian(head + 16, 8)) error[i] = kDataHash;
  });
}

}  // namespace jaxdali
