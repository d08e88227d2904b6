// The bytes of a record, wherever they are.
#ifndef JAXDALI_FFI_HOST_RECORD_BYTES_H_
#define JAXDALI_FFI_HOST_RECORD_BYTES_H_

#include <cstdint>
#include <memory>
#include <string>

namespace jaxdali {

// The bytes of one record: in memory, or in an open file, of which a window is read at a time.
class RecordBytes {
 public:
  static constexpr int64_t kWindow = 4096;

  RecordBytes(const uint8_t* data, int64_t size) : data_(data), size_(size) {}
  RecordBytes(int fd, int64_t offset, int64_t size) : fd_(fd), offset_(offset), size_(size) {}

  int64_t size() const { return size_; }
  int error() const { return error_; }  // errno, or kSizeChanged: the file ends early

  // n <= kWindow bytes, until the next call; null: they are not all there.
  const uint8_t* Peek(int64_t at, int64_t n);
  bool Copy(int64_t at, int64_t n, uint8_t* to);

 private:
  const uint8_t* data_ = nullptr;
  int fd_ = -1;
  int64_t offset_ = 0, size_;
  int64_t window_at_ = 0, window_size_ = 0;
  std::unique_ptr<uint8_t[]> window_;
  int error_ = 0;
};

// What an error of RecordBytes or ReadAt means.
std::string Why(int error);

// Reads exactly n bytes; 0, errno, or kSizeChanged where the file ends before.
int ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_BYTES_H_
