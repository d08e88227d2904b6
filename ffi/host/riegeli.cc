#include "ffi/host/riegeli.h"

#include <algorithm>
#include <vector>

#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

constexpr int64_t kInside = kBlock - kBlockHeader;

// A number of at most 63 bits. Returns the offset after it. 0: it is cut off; -1: it is invalid.
int64_t Varint(const uint8_t* data, int64_t size, int64_t at, int64_t* x) {
  uint64_t value = 0;
  for (int shift = 0; at < size; shift += 7, at++) {
    if (shift > 56) return -1;
    value |= uint64_t{data[at] & 0x7Fu} << shift;
    if (data[at] < 0x80) {
      *x = static_cast<int64_t>(value);
      return at + 1;
    }
  }
  return 0;
}

}  // namespace

void ReadBlocked(const FileTable& table, const int64_t* files, const int64_t* begins, int n, uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                 ThreadPool* pool) {
  std::vector<FileRange> ranges;
  ranges.reserve(2 * static_cast<size_t>(n));
  for (int i = 0; i < n; i++) {
    error[i] = 0;
    for (int64_t done = 0; done < sizes[i];) {
      const int64_t at = begins[i] + done, inside = at % kInside, count = std::min(kInside - inside, sizes[i] - done);
      ranges.push_back({files[i], at / kInside * kBlock + kBlockHeader + inside, count, data + starts[i] + done, i});
      done += count;
    }
  }
  ReadRanges(table, &ranges, file_sizes, pool);
  for (const FileRange& r : ranges)
    if (r.error != 0) error[r.id] = r.error;
}

int64_t ParseChunkTable(const uint8_t* data, int64_t size, bool end, int64_t* rows, int64_t most, int64_t* used) {
  int64_t n = 0;
  *used = 0;
  while (*used < size && n < most) {
    int64_t row[3] = {0, 0, 0}, at = *used, tag = 0, x = 0;
    for (bool first = true;; first = false) {
      const int64_t value = at == size ? 0 : Varint(data, size, at, &tag);
      if (value < 0) return -1;
      if (value == 0) {  // the end, or a part of a number
        if (!end) return n;
        if (at < size || first) return -1;
        break;
      }
      if (first != (tag == 8)) {  // each entry begins with its place, which is never 0
        if (first) return -1;
        break;
      }
      if (tag != 8 && tag != 16 && tag != 24) return -1;
      const int64_t next = Varint(data, size, value, &x);
      if (next < 0 || (next == 0 && end)) return -1;
      if (next == 0) return n;
      row[tag / 8 - 1] = x;
      at = next;
    }
    std::copy_n(row, 3, rows + 3 * n++);
    *used = at;
  }
  return n;
}

void CheckChunks(const uint8_t* heads, int64_t stride, const int64_t* head_sizes, int n, const uint8_t* data,
                 const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool) {
  pool->Run(n, [&](int i) {
    if (error[i] != 0) return;
    const uint8_t* head = heads + i * stride;
    HighwayHash header(kRiegeliKey);
    header.Append(head + 8, kChunkHeader - 8);
    if (header.Finish() != Little(head, 8)) {
      error[i] = kHeaderHash;
      return;
    }
    const int64_t before = head_sizes[i] - kChunkHeader;
    if (Little(head + 8, 8) != static_cast<uint64_t>(before + sizes[i]) || Little(head + 24, 8) != ('r' | 1 << 8)) {
      error[i] = kOtherChunk;
      return;
    }
    HighwayHash hash(kRiegeliKey);
    hash.Append(head + kChunkHeader, before);
    hash.Append(data + starts[i], sizes[i]);
    if (hash.Finish() != Little(head + 16, 8)) error[i] = kDataHash;
  });
}

}  // namespace jaxdali
