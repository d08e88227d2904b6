// Removes stuffing by memchr and memcpy, piece by piece. FF is rare: once in 256 bytes at random.
#include "ffi/jpeg/scan_bytes.h"

#include <algorithm>
#include <cstring>

namespace jaxdali::jpeg {

// Begins with the data at `from`. Returns the address of the copied bytes.
const uint8_t* ScanBytes::Start(const uint8_t* from, const uint8_t* end) {
  source_ = from;
  end_ = end;
  filled_ = buffer_.get() + kBefore;
  return Continue(filled_);
}

// Copies more bytes behind those from `position` on, which are not read yet. Returns the new address of `position`.
const uint8_t* ScanBytes::Continue(const uint8_t* position) {
  // At most kAhead: Continue is called beyond limit(), or before any data are there.
  const int64_t num_kept = filled_ - position;
  uint8_t* const begin = buffer_.get() + kBefore;
  // Bytes that were not read yet move to the front, with a few before them, which Place may need.
  std::memmove(begin - kBefore, position - kBefore, static_cast<size_t>(kBefore + num_kept));
  uint8_t* to = begin + num_kept;
  known_position_ = to;
  known_place_ = source_;
  const uint8_t* stop = source_ + std::min<int64_t>(kPiece, end_ - source_);
  complete_ = false;
  // Vectors, or AVX-512's byte compression, take as long: half of the time is the first read of the file's bytes.
  while (source_ < stop) {
    const auto* ff = static_cast<const uint8_t*>(std::memchr(source_, 0xFF, static_cast<size_t>(stop - source_)));
    const int64_t n = (ff ? ff : stop) - source_;
    std::memcpy(to, source_, static_cast<size_t>(n));
    to += n;
    source_ += n;
    if (!ff) continue;
    if (end_ - source_ < 2 || source_[1] != 0) {
      complete_ = true;
      break;
    }
    *to++ = 0xFF;
    source_ += 2;  // one byte beyond `stop` if that lies between the two
  }
  complete_ = complete_ || source_ == end_;
  filled_ = to;
  std::memset(to, 0, kAhead);
  // At the end of the data only a few of the zeros may be read: the reader may look eight bytes ahead. Elsewhere two
  // MCUs that begin at the limit end before `to` (the assertion in band.h).
  limit_ = complete_ ? to + 8 : to - kAhead + 64;
  return begin;
}

// The place in the file of a copied byte, counted from the last one whose place was asked for.
const uint8_t* ScanBytes::Place(const uint8_t* position) {
  // Each copied FF was followed by a stuffed 00 in the file.
  int stuffed = 0;
  for (const uint8_t* p = std::min(position, known_position_); p < std::max(position, known_position_); p++)
    stuffed += *p == 0xFF;
  known_place_ += position - known_position_ + (position < known_position_ ? -stuffed : stuffed);
  known_position_ = position;
  return known_place_;
}

}  // namespace jaxdali::jpeg
