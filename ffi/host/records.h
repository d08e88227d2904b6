// Records of containers, a batch at a time: found in their files (or in memory), taken apart, and their values copied
// to their places. Nothing in a record is trusted.
#ifndef JAXDALI_FFI_HOST_RECORDS_H_
#define JAXDALI_FFI_HOST_RECORDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ffi/common/thread_pool.h"
#include "ffi/host/files.h"

namespace jaxdali {

enum class RecordFormat : int32_t {
  kBytes,         // one field: the whole record
  kExample,       // tf.Example, framed as in TFRecord files: the features of given names
  kImageRecord,   // MXNet's RecordIO: image, label
  kDatum,         // caffe.Datum: image, label
  kTensorProtos,  // caffe2.TensorProtos: its tensors
};

enum class ValueType : int32_t { kNone, kBytes, kFloats, kInts };

// Values of one field, as they lie in the record: bytes or floats as they are, or protobuf's varints.
struct Piece {
  int32_t field;
  ValueType type;
  int64_t offset, size;
};

// What became of one field of one record. dims: what the record says of the shape, or zeros.
struct FieldInfo {
  ValueType type = ValueType::kNone;
  int64_t count = 0;
  int64_t dims[3] = {0, 0, 0};
};

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

struct RecordLayout {
  RecordFormat format;
  std::vector<std::string> names;  // kExample: of the features
  int fields;
};

// Finds the fields of a record; returns why it can't, or an empty text. `info` has layout.fields entries.
std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces);

// CRC-32C (Castagnoli) of more bytes after those whose checksum is `crc` (at first 0).
uint32_t Crc32c(uint32_t crc, const uint8_t* data, int64_t size);

// Whole numbers >= 0 between white space. Returns how many were read; `*bad`: offset of what is none, or -1.
int64_t ParseIntegers(std::string_view text, int64_t* out, int64_t room, int64_t* bad);

// The records of one batch. Their bytes are read (small ones) or looked at (large ones) by `Scan...`; `Fill` then
// copies values, of large records straight from the file.
class RecordBatch {
 public:
  RecordBatch(RecordLayout layout, int n);
  ~RecordBatch();
  RecordBatch(const RecordBatch&) = delete;
  RecordBatch& operator=(const RecordBatch&) = delete;

  void ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool);

  // Record i is sizes[i] bytes at offsets[i] of file index[i]. stamps: size and time of modification (ns) that each
  // file of the table has to have. checked[i]: its checksum need not be looked at; set when it was.
  void ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* index, const int64_t* offsets,
                 const int64_t* sizes, uint8_t* checked, ThreadPool* pool);

  int n() const { return static_cast<int>(samples_.size()); }
  int fields() const { return layout_.fields; }
  const FieldInfo& info(int i, int field) const { return infos_[static_cast<size_t>(i) * layout_.fields + field]; }
  const std::string& error(int i) const { return samples_[i].error; }

  // Copies a field's values: bytes to 8-bit elements, floats to 32-bit ones, integers to 32- or 64-bit ones; record i's
  // to element starts[i]. Records with an error, and those of which skip[i], are left out.
  void Fill(int field, void* data, int bytes_per_element, const int64_t* starts, const bool* skip, ThreadPool* pool);

 private:
  struct Sample {
    std::unique_ptr<RecordBytes> bytes;
    std::vector<Piece> pieces;
    std::string error;
  };

  RecordLayout layout_;
  std::vector<Sample> samples_;
  std::vector<FieldInfo> infos_;
  std::unique_ptr<uint8_t[]> arena_;  // the small records
  std::vector<int> open_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORDS_H_
