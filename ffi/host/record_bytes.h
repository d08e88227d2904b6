// The bytes of a record, wherever they are.
#ifndef JAXDALI_FFI_HOST_RECORD_BYTES_H_
#define JAXDALI_FFI_HOST_RECORD_BYTES_H_

#include <cstdint>
#include <string>

namespace jaxdali {

// Where a record lies: in memory, or in an open file, of which `end` bytes may be read.
struct RecordPlace {
  const uint8_t* data = nullptr;
  int fd = -1;
  int64_t offset = 0, size = 0, end = 0;
};

// The bytes of one record. Of a file a window is read at a time.
class RecordBytes {
 public:
  static constexpr int64_t kWindow = 65536;

  // Bytes of a file. Records one behind the other may share it: where one ends it often holds the head of the next.
  struct Window {
    int fd = -1;
    int64_t at = 0, size = 0;
    uint8_t data[kWindow];
  };

  // window: for `Peek` where the record is in a file.
  explicit RecordBytes(const RecordPlace& place, Window* window = nullptr) : place_(place), window_(window) {}

  int64_t size() const { return place_.size; }
  int error() const { return error_; }  // errno, or kSizeChanged: the file ends early

  // n <= kWindow bytes, until the next call; null: they are not all there.
  const uint8_t* Peek(int64_t at, int64_t n);
  // The same, but null where they would have to be read.
  const uint8_t* Held(int64_t at, int64_t n) const;
  bool Copy(int64_t at, int64_t n, uint8_t* to);

 private:
  const RecordPlace place_;
  Window* const window_;
  int error_ = 0;
};

// What an error of RecordBytes or ReadAt means.
std::string Why(int error);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_BYTES_H_
