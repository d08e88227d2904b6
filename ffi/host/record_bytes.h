// The bytes of a record, in memory or in a file.
#ifndef JAXDALI_FFI_HOST_RECORD_BYTES_H_
#define JAXDALI_FFI_HOST_RECORD_BYTES_H_

#include <cstdint>
#include <string>

namespace jaxdali {

// The place of a record: in memory, or in an open file, of which the first `end` bytes may be read.
struct RecordPlace {
  const uint8_t* data = nullptr;  // null: in a file
  int fd = -1;
  int64_t offset = 0, size = 0, end = 0;  // of the record; see above
};

// The bytes of one record. In a file it reads one window at a time.
class RecordBytes {
 public:
  static constexpr int64_t kWindow = 65536;

  // Bytes of a file. Consecutive records may share a window, because the end of one often contains the head of the
  // next.
  struct Window {
    int fd = -1;
    int64_t offset = 0, size = 0;
    uint8_t data[kWindow];
  };

  // window: for `Peek`, if the record is in a file.
  explicit RecordBytes(const RecordPlace& place, Window* window = nullptr) : place_(place), window_(window) {}

  int64_t size() const { return place_.size; }
  int error() const { return error_; }  // errno, or kSizeChanged: the file ends early

  // Returns n <= kWindow bytes of the record from `offset` on, valid until the next call. Null: not all of them exist,
  // they can't be read (see `error`), or the record is in a file and there is no window.
  const uint8_t* Peek(int64_t offset, int64_t n);
  // The same, but null if they would have to be read from the file.
  const uint8_t* PeekLoaded(int64_t offset, int64_t n) const;
  // Copies n bytes, without the window. False: not all of them exist, or they can't be read (see `error`).
  bool Copy(int64_t offset, int64_t n, uint8_t* to);

 private:
  const RecordPlace place_;
  Window* const window_;
  int error_ = 0;
};

// The text of an error of RecordBytes or ReadAt.
std::string ErrorText(int error);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_BYTES_H_
