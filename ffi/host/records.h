// Reads records of containers, one batch at a time: finds them in their files (or in memory), parses them, and copies
// their values to the outputs. No byte of a record is trusted: lengths and offsets are checked before they are used.
//
// The reader of a batch calls ScanFiles (or ScanMemory), then Shape, then allocates the outputs and calls Fill. A
// record up to 16 KB is read whole and parsed in memory. A larger one is parsed through a window (record_bytes.h), and
// its values are read again in Fill, straight to their places. Read next: record_parser.h, then the parser of one
// format (tfrecord.cc, recordio.cc, caffe.cc, tar.h).
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

// Finds the fields of one stored part of a record. Returns an error message, or an empty text. `info` has layout.fields
// entries.
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
  void Fail(int i, std::string message) { parts_[static_cast<size_t>(i) * layout_.parts].error = std::move(message); }

  // The shapes of the outputs. Row i of shapes[k] is the shape of record i in output k, or zeros if it has an error.
  // shapes[k] is null for an output of fixed shape. A record that does not fit an output gets an error.
  void Shape(const std::vector<int64_t*>& shapes);

  // The destination of a field's values: those of record i begin at element starts[i]. missing: bytes that are written
  // `count` times for a record without the field; or empty. shape: of the output; only kStrings, kPadded and kLengths
  // differ from one value after another.
  struct Target {
    int field;
    uint8_t* data;
    int bytes;  // bytes of an element
    std::vector<int64_t> starts;
    std::string missing = {};
    int64_t count = 0;
    RecordOutput::Shape shape = RecordOutput::Shape::kCount;
  };

  // Copies values: bytes unchanged, floats to 32-bit elements, integers to 32- or 64-bit ones. Skips records with an
  // error.
  void Fill(const std::vector<Target>& targets, ThreadPool* pool);

 private:
  // One stored part of a record (RecordLayout::parts), and the result of its scan.
  struct StoredPart {
    RecordPlace place;
    int64_t file = -1;                  // the file, opened only to read this record; -1: it stays open
    int job = 0, first = 0, count = 0;  // its pieces are `count` of pieces_[job], from `first` on
    std::string error;
    // Whether a piece is copied from the file to the output without conversion.
    bool IsCopied(const Piece& p) const { return place.data == nullptr && p.type != ValueType::kInts && !p.kept; }
  };

  // Parses stored part r, whose place is known. is_checked: its checksum was already checked. The pieces are appended
  // to pieces_[job].
  void Parse(int r, int job, bool is_checked, RecordBytes::Window* window = nullptr);

  std::span<const Piece> PiecesOf(const StoredPart& part) const {
    return {pieces_[static_cast<size_t>(part.job)].data() + part.first, static_cast<size_t>(part.count)};
  }

  // The stored part of record i that has this field of all parts' fields.
  StoredPart& PartOf(int i, int field) {
    return parts_[static_cast<size_t>(i) * layout_.parts + field / layout_.fields];
  }

  class Cursor;
  // Copies the pieces of a field that are not IsCopied: varints become integers, and kept bytes are copied from memory.
  void Convert(int i, const Target& target, uint8_t* begin);
  void FillLengths(int i, int field, int64_t* to);

  const RecordLayout& layout_;
  const int fields_;                        // fields of all parts
  std::vector<StoredPart> parts_;           // part k of record i is number i * layout.parts + k
  std::vector<FieldInfo> infos_;            // of all fields, part after part
  std::vector<std::vector<Piece>> pieces_;  // where the values are; each job of a scan has a list
  std::unique_ptr<uint8_t[]> arena_;        // contents of the small records, one after another
  std::vector<int> open_;                   // descriptors that the destructor closes
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORDS_H_
