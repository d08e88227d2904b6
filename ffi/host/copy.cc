// Copies with SSE2's streaming stores on x86-64, with memcpy elsewhere.
#include "ffi/host/copy.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace jaxdali {

// Copies n bytes past the caches, a line of 64 bytes at a time; see copy.h.
void CopyStreaming(uint8_t* to, const uint8_t* from, int64_t n) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64;
  if (n >= 16 * kLine) {
    // A streaming store must be aligned, and only a whole line is written without reading it first.
    const int64_t to_line = -reinterpret_cast<intptr_t>(to) & (kLine - 1);
    std::memcpy(to, from, static_cast<size_t>(to_line));
    to += to_line, from += to_line, n -= to_line;
    for (; n >= kLine; n -= kLine, to += kLine, from += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      auto* line = reinterpret_cast<__m128i*>(to);
      _mm_stream_si128(line, a);
      _mm_stream_si128(line + 1, b);
      _mm_stream_si128(line + 2, c);
      _mm_stream_si128(line + 3, d);
    }
    // Streaming stores are not ordered with others: the next reader may be another thread.
    _mm_sfence();
  }
#endif
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n));
}

// Copies with the pool's threads, past the caches if there are many bytes.
void CopyBytes(const std::vector<ByteCopy>& copies, ThreadPool* pool) {
  constexpr int64_t kStreamingBytes = 4 << 20;  // total bytes, more than a core's cache
  constexpr int64_t kPartBytes = 256 << 10;     // bytes that a thread copies at once
  std::vector<size_t> parts;                    // where each part begins
  int64_t total = 0, part_bytes = kPartBytes;
  // Divides the copies into parts of at least kPartBytes bytes, but for the last one.
  for (size_t k = 0; k < copies.size(); k++) {
    if (part_bytes >= kPartBytes) parts.push_back(k), part_bytes = 0;
    part_bytes += copies[k].size;
    total += copies[k].size;
  }
  parts.push_back(copies.size());
  pool->Run(static_cast<int>(parts.size()) - 1, [&](int p) {
    for (size_t k = parts[p]; k < parts[p + 1]; k++) {
      const ByteCopy& c = copies[k];
      if (total >= kStreamingBytes)
        CopyStreaming(c.to, c.from, c.size);
      else if (c.size > 0)
        std::memcpy(c.to, c.from, static_cast<size_t>(c.size));
    }
  });
}

}  // namespace jaxdali
