#include "ffi/jpeg/scan_bytes.h"

#include <algorithm>
#include <cstring>

namespace jaxdali::jpeg {

const uint8_t* ScanBytes::Start(const uint8_t* from, const uint8_t* end) {
  from_ = from;
  end_ = end;
  filled_ = buffer_.get() + kBehind;
  return Continue(filled_);
}

const uint8_t* ScanBytes::Continue(const uint8_t* at) {
  const int64_t kept = filled_ - at;  // at most kAhead: Continue is called beyond limit(), or before any data are there
  uint8_t* const begin = buffer_.get() + kBehind;
  std::memmove(begin - kBehind, at - kBehind, static_cast<size_t>(kBehind + kept));
  uint8_t* to = begin + kept;
  known_ = to;
  known_place_ = from_;
  const uint8_t* stop = from_ + std::min<int64_t>(kPiece, end_ - from_);
  complete_ = false;
  // Vectors, or AVX-512's byte compression, take as long: half of the time is the first read of the file's bytes.
  while (from_ < stop) {
    const auto* ff = static_cast<const uint8_t*>(std::memchr(from_, 0xFF, static_cast<size_t>(stop - from_)));
    const int64_t n = (ff ? ff : stop) - from_;
    std::memcpy(to, from_, static_cast<size_t>(n));
    to += n;
    from_ += n;
    if (!ff) continue;
    if (end_ - from_ < 2 || from_[1] != 0) {
      complete_ = true;
      break;
    }
    *to++ = 0xFF;
    from_ += 2;  // one byte beyond `stop` if that lies between the two
  }
  complete_ = complete_ || from_ == end_;
  filled_ = to;
  std::memset(to, 0, kAhead);
  // At the end of the data only a few of the zeros may be read: the reader may look eight bytes ahead.
  limit_ = complete_ ? to + 8 : to - kAhead + 64;
  return begin;
}

const uint8_t* ScanBytes::Place(const uint8_t* at) {
  int stuffed = 0;
  for (const uint8_t* p = std::min(at, known_); p < std::max(at, known_); p++) stuffed += *p == 0xFF;
  known_place_ += at - known_ + (at < known_ ? -stuffed : stuffed);
  known_ = at;
  return known_place_;
}

}  // namespace jaxdali::jpeg
