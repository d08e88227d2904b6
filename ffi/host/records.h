// Reads records of containers, one batch at a time: finds them in their files (or in memory), parses them, and copies
// their values to the outputs. Nothing in a record is trusted.
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

// Finds the fields of a part of a record. Returns an error message, or an empty text. `info` has layout.fields entries.
std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces);

// The records of one batch. `Scan...` reads small records and parses large ones in place. `Fill` then copies values,
// those of large records straight from the file.
class RecordBatch {
 public:
  // The layout must live as long as the batch.
  RecordBatch(const RecordLayout& layout, int n);
  ~RecordBatch();
  RecordBatch(const RecordBatch&) = delete;
  RecordBatch& operator=(const RecordBatch&) = delete;

  // Part k of record i is records[i * layout.parts + k].
  void ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool);

  // One part of all records of a list: offset and size of each, and whether its checksum was already checked, which the
  // scan sets.
  struct Extents {
    const int64_t* table;
    uint8_t* checked;
  };

  // Scans records index[i] of a list. Those of file f begin at bounds[f]; bounds has one entry more than there are
  // files. stamps: the size and the modification time (ns) that each file must have.
  void ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* bounds, const int64_t* index,
                 const std::vector<Extents>& parts, ThreadPool* pool);

  int n() const { return static_cast<int>(parts_.size()) / layout_.parts; }
  const RecordLayout& layout() const { return layout_; }
  const FieldInfo& info(int i, int field) const { return infos_[static_cast<size_t>(i) * fields_ + field]; }
  const std::string& error(int i) const;
  void Fail(int i, std::string why) { parts_[static_cast<size_t>(i) * layout_.parts].error = std::move(why); }

  // The shapes of the outputs. Row i of shapes[k] is the shape of record i in output k, or zeros if it has an error.
  // shapes[k] is null for an output of fixed shape. A record that does not fit an output gets an error.
  void Shape(const std::vector<int64_t*>& shapes);

  // Where the values of a field go: those of record i to element starts[i]. missing: written `count` times for a record
  // without the field, or empty.
  struct Target {
    int field;
    uint8_t* data;
    int bytes;  // bytes of an element
    std::vector<int64_t> starts;
    std::string missing = {};
    int64_t count = 0;
  };

  // Copies values: bytes unchanged, floats to 32-bit elements, integers to 32- or 64-bit ones. Skips records with an
  // error.
  void Fill(const std::vector<Target>& targets, ThreadPool* pool);

 private:
  struct Part {
    RecordPlace place;
    int64_t file = -1;                  // the file, opened only to read this record; -1: it stays open
    int job = 0, first = 0, count = 0;  // its pieces are `count` of pieces_[job], from `first` on
    std::string error;
    // Whether a piece goes from the file to its place unchanged.
    bool Direct(const Piece& p) const { return place.data == nullptr && p.type != ValueType::kInts && !p.kept; }
  };

  // Parses part r, whose place is known. checked: its checksum was already checked.
  void Parse(int r, int job, bool checked, RecordBytes::Window* window = nullptr);

  std::span<const Piece> PiecesOf(const Part& part) const {
    return {pieces_[static_cast<size_t>(part.job)].data() + part.first, static_cast<size_t>(part.count)};
  }

  // Copies the pieces of a field that are not `Direct`.
  void Convert(int r, int field, uint8_t* to, int bytes_per_element);

  const RecordLayout& layout_;
  const int fields_;  // fields of all parts
  std::vector<Part> parts_;
  std::vector<FieldInfo> infos_;
  std::vector<std::vector<Piece>> pieces_;
  std::unique_ptr<uint8_t[]> arena_;  // contents of the small records
  std::vector<int> open_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORDS_H_
