#include "ffi/host/riegeli.h"

#include "ffi/host/record_parser.h"

namespace jaxdali {

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
