// Undoing the filters of PNG's rows: each byte is what is stored plus a prediction from the bytes to the left, above
// and above to the left, of the pixels there.
#ifndef JAXDALI_FFI_PNG_UNFILTER_H_
#define JAXDALI_FFI_PNG_UNFILTER_H_

#include <cstdint>

namespace jaxdali::png {

enum Filter { kNone, kSub, kUp, kAverage, kPaeth, kFilters };

// That many bytes behind what is stored and behind the row above may be read, and behind the row be written.
inline constexpr int kMargin = 8;

// A row of n bytes; a pixel has `pixel` of them, at least 1. `above` holds zeros for the first row. No two of the three
// overlap.
void Unfilter(int filter, int pixel, int64_t n, const uint8_t* stored, const uint8_t* above, uint8_t* row);

// Two rows, one below the other, that both have that filter: kAverage or kPaeth. That is quicker, as each pixel waits
// for the one before it.
void UnfilterTwo(int filter, int pixel, int64_t n, const uint8_t* const* stored, const uint8_t* above,
                 uint8_t* const* rows);

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_UNFILTER_H_
