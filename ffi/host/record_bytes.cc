// Bounds are checked as `n > size() - offset`, which can't overflow, unlike `offset + n > size()`.
#include "ffi/host/record_bytes.h"

#include <algorithm>
#include <cstring>

#include "ffi/host/files.h"

namespace jaxdali {

std::string ErrorText(int error) {
  return error == kSizeChanged ? "the file ends before the record does" : std::strerror(error);
}

// n bytes of the record, if they are in memory or in the window; else null.
const uint8_t* RecordBytes::PeekLoaded(int64_t offset, int64_t n) const {
  if (offset < 0 || n < 0 || offset > size() || n > size() - offset) return nullptr;
  if (place_.data != nullptr) return place_.data + offset;
  if (window_ == nullptr || window_->fd != place_.fd) return nullptr;
  const int64_t begin = place_.offset + offset - window_->offset;  // in the window
  return begin >= 0 && begin <= window_->size && n <= window_->size - begin ? window_->data + begin : nullptr;
}

// n bytes of the record, in memory, in the window, or read into the window. Null: not all of them exist, they can't be
// read, or there is no window.
const uint8_t* RecordBytes::Peek(int64_t offset, int64_t n) {
  constexpr int64_t kAhead = 512;  // bytes to read at least; the keys and lengths of messages lie close together
  if (const uint8_t* bytes = PeekLoaded(offset, n)) return bytes;
  if (place_.data != nullptr || offset < 0 || n < 0 || offset > size() || n > size() - offset) return nullptr;
  if (n > kWindow || window_ == nullptr) return nullptr;
  // It may read beyond the record, because the next one probably begins there, but not beyond the readable part of the
  // file.
  const int64_t begin = place_.offset + offset, end = std::max(place_.offset + place_.size, place_.end);
  const int64_t count = std::min(std::max(n, kAhead), end - begin);
  window_->fd = -1;  // nothing is in the window if the read fails
  if (int e = ReadAt(place_.fd, begin, window_->data, count)) {
    error_ = e;
    return nullptr;
  }
  window_->fd = place_.fd;
  window_->offset = begin;
  window_->size = count;
  return window_->data;
}

// Copies n bytes, without the window. False: not all of them exist, or they can't be read.
bool RecordBytes::Copy(int64_t offset, int64_t n, uint8_t* to) {
  if (offset < 0 || n < 0 || offset > size() || n > size() - offset) return false;
  if (place_.data != nullptr) {
    std::memcpy(to, place_.data + offset, static_cast<size_t>(n));
    return true;
  }
  if (int e = ReadAt(place_.fd, place_.offset + offset, to, n)) {
    error_ = e;
    return false;
  }
  return true;
}

}  // namespace jaxdali
