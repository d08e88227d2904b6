// Records of containers, a batch at a time: found in their files (or in memory), taken apart, and their values copied
// to their places. Nothing in a record is trusted.
#ifndef JAXDALI_FFI_HOST_RECORDS_H_
#define JAXDALI_FFI_HOST_RECORDS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/common/thread_pool.h"
#include "ffi/host/files.h"
#include "ffi/host/record_parser.h"

namespace jaxdali {

// Finds the fields of a part of a record; returns why it can't, or an empty text. `info` has layout.fields entries.
std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces);

// The records of one batch. Their bytes are read (small ones) or looked at (large ones) by `Scan...`; `Fill` then
// copies values, of large records straight from the file.
class RecordBatch {
 public:
  // The layout must live as long as the batch.
  RecordBatch(const RecordLayout& layout, int n);
  ~RecordBatch();
  RecordBatch(const RecordBatch&) = delete;
  RecordBatch& operator=(const RecordBatch&) = delete;

  // Part k of record i is records[i * layout.parts + k].
  void ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool);

  // A part of all records of a list: offset and size of each, and whether its checksum need not be looked at, which is
  // set when it was.
  struct Extents {
    const int64_t* table;
    uint8_t* checked;
  };

  // Records index[i] of a list, of which those of file f begin at bounds[f]; bounds has an entry more than there are
  // files. stamps: size and time of modification (ns) that each file has to have.
  void ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* bounds, const int64_t* index,
                 const std::vector<Extents>& parts, ThreadPool* pool);

  int n() const { return static_cast<int>(parts_.size()) / layout_.parts; }
  const RecordLayout& layout() const { return layout_; }
  const FieldInfo& info(int i, int field) const { return infos_[static_cast<size_t>(i) * fields_ + field]; }
  const std::string& error(int i) const;
  void Fail(int i, std::string why) { parts_[static_cast<size_t>(i) * layout_.parts].error = std::move(why); }

  // The outputs' shapes: row i of shapes[k] is record i's of output k, or zeros where there is an error; null for one
  // of a fixed shape. What an output can't be made of is an error.
  void Shape(const std::vector<int64_t*>& shapes);

  // Where the values of a field go: record i's to element starts[i]. missing: what is written, `count` times, for
  // records that lack it, or empty.
  struct Target {
    int field;
    uint8_t* data;
    int bytes;  // of an element
    std::vector<int64_t> starts;
    std::string missing = {};
    int64_t count = 0;
  };

  // Copies values: bytes as they are, floats to 32-bit elements, integers to 32- or 64-bit ones. Records with an error
  // are left out.
  void Fill(const std::vector<Target>& targets, ThreadPool* pool);

 private:
  struct Part {
    RecordPlace place;
    int64_t file = -1;                  // which is opened to read the record and no longer; -1: it stays open
    int job = 0, first = 0, count = 0;  // its pieces: `count` of pieces_[job]
    std::string error;
    // Whether a piece goes from the file to its place as it is.
    bool Direct(const Piece& p) const { return place.data == nullptr && p.type != ValueType::kInts && !p.kept; }
  };

  // Finds the fields of part r, whose place is known. checked: its checksum need not be looked at.
  void Parse(int r, int job, bool checked, RecordBytes::Window* window = nullptr);

  std::span<const Piece> PiecesOf(const Part& part) const {
    return {pieces_[static_cast<size_t>(part.job)].data() + part.first, static_cast<size_t>(part.count)};
  }

  // Copies those of a field's values to their place that are not `Direct`.
  void Convert(int r, int field, uint8_t* to, int bytes_per_element);

  const RecordLayout& layout_;
  const int fields_;  // of all parts
  std::vector<Part> parts_;
  std::vector<FieldInfo> infos_;
  std::vector<std::vector<Piece>> pieces_;
  std::unique_ptr<uint8_t[]> arena_;  // the small records
  std::vector<int> open_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORDS_H_
