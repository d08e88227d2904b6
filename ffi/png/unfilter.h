// Reverses the filters of PNG's rows (ISO/IEC 15948, clause 9): each byte is the stored one plus a prediction from the
// corresponding bytes of the pixels to the left, above, and above left.
#ifndef JAXDALI_FFI_PNG_UNFILTER_H_
#define JAXDALI_FFI_PNG_UNFILTER_H_

#include <cstdint>

namespace jaxdali::png {

enum Filter { kNone, kSub, kUp, kAverage, kPaeth, kFilters };

// This many bytes after `stored` and `above` may be read, and after `row` written.
inline constexpr int kMargin = 8;

// Unfilters a row of n bytes. A pixel has `pixel` bytes, at least 1. `above` is zero for the first row. The three
// buffers do not overlap.
void Unfilter(int filter, int pixel, int64_t n, const uint8_t* stored, const uint8_t* above, uint8_t* row);

// Unfilters two consecutive rows that both have this filter, kAverage or kPaeth. This is faster, because each pixel
// waits for the one before it.
void UnfilterTwo(int filter, int pixel, int64_t n, const uint8_t* const* stored, const uint8_t* above,
                 uint8_t* const* rows);

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_UNFILTER_H_
