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
#include "ffi/host/record_parser.h"

namespace jaxdali {

// Finds the fields of a record; returns why it can't, or an empty text. `info` has layout.fields entries.
std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces);

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
    RecordPlace place;
    std::vector<Piece> pieces;
    std::string error;
    // Whether a piece goes from the file to its place as it is.
    bool Direct(const Piece& p) const { return place.data == nullptr && p.type != ValueType::kInts && !p.kept; }
  };

  // Finds the fields of record i, whose place is known. checked: its checksum need not be looked at.
  void Parse(int i, bool checked, RecordBytes::Window* window = nullptr);

  // Copies those of a field's values to their place that are not `Direct`.
  void Convert(int i, int field, uint8_t* to, int bytes_per_element);

  RecordLayout layout_;
  std::vector<Sample> samples_;
  std::vector<FieldInfo> infos_;
  std::unique_ptr<uint8_t[]> arena_;  // the small records
  std::vector<int> open_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORDS_H_
