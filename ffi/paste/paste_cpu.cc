// CPU kernel of the canvases: row by row.
#include <cstring>
#include <type_traits>

#include "ffi/paste/paste.h"

namespace jaxdali {
namespace {

// Copies n elements, or converts them by way of V, which holds all values of From (rounded if they have 64 bits).
template <class From, class To>
void CopyRow(const From* from, int64_t n, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
  } else {
    using V = std::conditional_t<sizeof(From) <= 2 || std::is_same_v<From, float>, float, double>;
    for (int64_t i = 0; i < n; i++) {
      if constexpr (kIsSmallFloat<From>)
        to[i] = ConvertTo<To>(static_cast<float>(from[i]));
      else
        to[i] = ConvertTo<To>(static_cast<V>(from[i]));
    }
  }
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Paste(const PasteBatch& b, int i) {
  if (const Status status = b.Check(i); status != kOk) return status;
  const PasteBatch::Sample to = b.Shape(b.out, i);
  // Later regions cover earlier ones; the rest of the canvas is 0.
  std::memset(b.out.bytes(i), 0, static_cast<size_t>(b.out.size(i) * SizeOf(b.out.dtype)));
  for (int k = 0; k < b.most; k++) {
    const PasteRegion r = b.regions[static_cast<int64_t>(i) * b.most + k];
    if (r.source < 0) continue;
    const PasteBatch::Sample from = b.Shape(b.in, r.source);
    // Copies the region row by row, with the C++ types of both images.
    WithType(b.in.dtype, [&](auto in) {
      WithType(b.out.dtype, [&](auto out) {
        const auto* source = b.in.sample<const decltype(in)>(r.source);
        auto* canvas = b.out.sample<decltype(out)>(i);
        for (int64_t f = 0; f < to.frames; f++)
          for (int64_t y = 0; y < r.height; y++)
            CopyRow(source + ((f * from.height + r.in_y + y) * from.width + r.in_x) * to.channels,
                    r.width * to.channels, canvas + ((f * to.height + r.out_y + y) * to.width + r.out_x) * to.channels);
      });
    });
  }
  return kOk;
}

}  // namespace jaxdali
