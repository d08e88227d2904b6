#include "ffi/host/record_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ffi/host/files.h"

namespace jaxdali {

int ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n) {
  while (n > 0) {
    const ssize_t got = pread(fd, to, static_cast<size_t>(std::min<int64_t>(n, int64_t{1} << 30)), offset);
    if (got == 0) return kSizeChanged;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    offset += got;
    to += got;
    n -= got;
  }
  return 0;
}

std::string Why(int error) {
  return error == kSizeChanged ? "the file ends before the record does" : std::strerror(error);
}

const uint8_t* RecordBytes::Peek(int64_t at, int64_t n) {
  constexpr int64_t kAhead = 512;  // bytes that are read at least: the keys and lengths of messages lie close together
  if (at < 0 || n < 0 || at > size() || n > size() - at) return nullptr;
  if (place_.data != nullptr) return place_.data + at;
  if (n > kWindow || window_ == nullptr) return nullptr;
  if (at < window_at_ || at + n > window_at_ + window_size_) {
    window_at_ = at;
    window_size_ = std::min(std::max(n, kAhead), size() - at);
    if (int e = ReadAt(place_.fd, place_.offset + at, window_, window_size_)) {
      error_ = e;
      window_size_ = 0;
      return nullptr;
    }
  }
  return window_ + (at - window_at_);
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
