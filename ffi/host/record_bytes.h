// The bytes of a record, wherever they are.
#ifndef JAXDALI_FFI_HOST_RECORD_BYTES_H_
#define JAXDALI_FFI_HOST_RECORD_BYTES_H_

#include <cstdint>
#include <string>

namespace jaxdali {

// Where a record lies: in memory, or in an open file.
struct RecordPlace {
  const uint8_t* data = nullptr;
  int fd = -1;
  int64_t offset = 0, size = 0;
};

// The bytes of one record. Of a file a window is read at a time.
class RecordBytes {
 public:
  static constexpr int64_t kWindow = 65536;
  using Window = uint8_t[kWindow];

  // window: for `Peek` where the record is in a file.
  explicit RecordBytes(const RecordPlace& place, uint8_t* window = nullptr) : place_(place), window_(window) {}

  int64_t size() const { return place_.size; }
  int error() const { return error_; }  // errno, or kSizeChanged: the file ends early

  // n <= kWindow bytes, until the next call; null: they are not all there.
  const uint8_t* Peek(int64_t at, int64_t n);
  bool Copy(int64_t at, int64_t n, uint8_t* to);

 private:
  const RecordPlace place_;
  uint8_t* const window_;
  int64_t window_at_ = 0, window_size_ = 0;
  int error_ = 0;
};

// What an error of RecordBytes or ReadAt means.
std::string Why(int error);

// Reads exactly n bytes; 0, errno, or kSizeChanged where the file ends before.
int ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_BYTES_H_
