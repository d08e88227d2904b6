// Several threads on one image. Each decodes a strip of its rows with its own decoder, which begins in the middle of
// the data.
//
// Note [Beginning in the middle]. Such a decoder has to know which MCU comes next, at which bit it begins, and the DC
// predictions. Restart markers give all of that. Without them, the data above the last strip are cut into segments. The
// threads skip through the segments, in less than half the time of decoding, starting from a byte that may be in the
// middle of a code. Such a decoder soon synchronises: once it reaches the true start of an MCU, it reads the same as a
// decoder that knows the position (after 191 bytes at the median, 1,010 in 99 % of cases). Then one thread continues
// from the end of each segment into the next one, until it meets the decoder of that segment. From there the end of the
// next segment is known, after correcting DC predictions and MCU numbers by the difference at the meeting point. If
// they do not meet, it goes through the whole segment. So each strip begins exactly where a single decoder would be,
// for any data. The strips overlap, so they find all damage; no coefficients are stored, and nothing is corrected
// afterwards.
#ifndef JAXDALI_FFI_JPEG_STRIPS_H_
#define JAXDALI_FFI_JPEG_STRIPS_H_

#include <cstdint>
#include <vector>

#include "ffi/jpeg/baseline.h"
#include "ffi/jpeg/helpers.h"

namespace jaxdali::jpeg {

struct Strip {
  int row;           // its first row
  Checkpoint start;  // where its decoder begins
};

// Cuts the rows that a decoder gives next, up to `end_row`, into strips for this thread and the idle ones. Empty: it is
// not worthwhile now. If it can't be later either, `helpers` has no threads afterwards.
std::vector<Strip> Cut(BaselineDecoder* decoder, int end_row, Helpers* helpers);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_STRIPS_H_
