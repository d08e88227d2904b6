// Several threads on one image: each decodes a strip of its rows, by a decoder of its own that begins in the middle of
// the data.
//
// Note [Beginning in the middle]. A decoder that does has to know which MCU comes next, at which bit it begins, and the
// DC predictions. Restart markers say all that. Where there are none, the data above the last strip are cut into
// segments, which the threads skip over, in less than half the time of decoding, from where a byte begins that may be
// anywhere in a code. Such a decoder is soon in step with one that knows: it comes to where an MCU begins, and from
// there on both read the same (after 191 bytes at the median, 1,010 in 99 % of cases). Then one thread goes on from the
// end of each segment into the next one, until it meets that one's decoder: the end of the next segment is thereby
// known, too, but for the difference of DC predictions and MCUs that the two counted where they met. Where they don't
// meet it goes through all of the segment. So each strip begins as one decoder alone would have come there, whatever
// the data are, and what is wrong with them is found by the strips, which overlap: no coefficients are kept, and
// nothing is corrected.
#ifndef JAXDALI_FFI_JPEG_STRIPS_H_
#define JAXDALI_FFI_JPEG_STRIPS_H_

#include <cstdint>
#include <vector>

#include "ffi/jpeg/baseline.h"
#include "ffi/jpeg/helpers.h"

namespace jaxdali::jpeg {

struct Strip {
  int row;           // its first one
  Checkpoint start;  // what its decoder enters at
};

// Cuts the rows that a decoder gives next, up to `end_row`, into strips for this thread and those that have nothing to
// do at present. Empty: there are none, or it is not worth it, now or later; then `helpers` has none afterwards.
std::vector<Strip> Cut(BaselineDecoder* decoder, int end_row, Helpers* helpers);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_STRIPS_H_
