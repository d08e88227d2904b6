#include "ffi/host/record_bytes.h"

#include <algorithm>
#include <cstring>

#include "ffi/host/files.h"

namespace jaxdali {

std::string Why(int error) {
  return error == kSizeChanged ? "the file ends before the record does" : std::strerror(error);
}

const uint8_t* RecordBytes::Held(int64_t at, int64_t n) const {
  if (at < 0 || n < 0 || at > size() || n > size() - at) return nullptr;
  if (place_.data != nullptr) return place_.data + at;
  if (window_ == nullptr || window_->fd != place_.fd) return nullptr;
  const int64_t from = place_.offset + at - window_->at;
  return from >= 0 && from <= window_->size && n <= window_->size - from ? window_->data + from : nullptr;
}

const uint8_t* RecordBytes::Peek(int64_t at, int64_t n) {
  constexpr int64_t kAhead = 512;  // bytes to read at least; the keys and lengths of messages lie close together
  if (const uint8_t* held = Held(at, n)) return held;
  if (place_.data != nullptr || at < 0 || n < 0 || at > size() || n > size() - at) return nullptr;
  if (n > kWindow || window_ == nullptr) return nullptr;
  const int64_t from = place_.offset + at, end = std::max(place_.offset + place_.size, place_.end);
  const int64_t some = std::min(std::max(n, kAhead), end - from);
  window_->fd = -1;
  if (int e = ReadAt(place_.fd, from, window_->data, some)) {
    error_ = e;
    return nullptr;
  }
  window_->fd = place_.fd;
  window_->at = from;
  window_->size = some;
  return window_->data;
}

bool RecordBytes::Copy(int64_t at, int64_t n, uint8_t* to) {
  if (at < 0 || n < 0 || at > size() || n > size() - at) return false;
  if (place_.data != nullptr) {
    std::memcpy(to, place_.data + at, static_cast<size_t>(n));
    return true;
  }
  if (int e = ReadAt(place_.fd, place_.offset + at, to, n)) {
    error_ = e;
    return false;
  }
  return true;
}

}  // namespace jaxdali
