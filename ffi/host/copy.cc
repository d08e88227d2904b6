#include "ffi/host/copy.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace jaxdali {

void CopyPast(uint8_t* to, const uint8_t* from, int64_t n) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64;
  if (n >= 16 * kLine) {
    const int64_t before = -reinterpret_cast<intptr_t>(to) & (kLine - 1);
    std::memcpy(to, from, static_cast<size_t>(before));
    to += before, from += before, n -= before;
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
    _mm_sfence();
  }
#endif
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n));
}

void CopyAll(const std::vector<Copied>& pieces, ThreadPool* pool) {
  constexpr int64_t kMuch = 4 << 20;      // total bytes, more than a core's cache
  constexpr int64_t kAtOnce = 256 << 10;  // bytes per thread
  std::vector<size_t> parts;              // where each part begins
  int64_t total = 0, part = kAtOnce;
  for (size_t k = 0; k < pieces.size(); k++) {
    if (part >= kAtOnce) parts.push_back(k), part = 0;
    part += pieces[k].size;
    total += pieces[k].size;
  }
  parts.push_back(pieces.size());
  pool->Run(static_cast<int>(parts.size()) - 1, [&](int p) {
    for (size_t k = parts[p]; k < parts[p + 1]; k++) {
      const Copied& c = pieces[k];
      if (total >= kMuch)
        CopyPast(c.to, c.from, c.size);
      else if (c.size > 0)
        std::memcpy(c.to, c.from, static_cast<size_t>(c.size));
    }
  });
}

}  // namespace jaxdali
