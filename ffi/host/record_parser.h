// The parsers of records, one for each format, and the types that they share. They accept any bytes.
//
// A parser walks through the head of a record and tells a FieldCollector where the values of each field are (Piece). It
// copies no values. Message reads protobuf's wire format: tf.Example in tfrecord.cc, Caffe's messages in caffe.cc.
#ifndef JAXDALI_FFI_HOST_RECORD_PARSER_H_
#define JAXDALI_FFI_HOST_RECORD_PARSER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi/host/record_bytes.h"

namespace jaxdali {

enum class RecordFormat : int32_t {
  kBytes,         // one field: the whole record
  kExample,       // tf.Example or tf.SequenceExample, framed as in TFRecord files: the features of given names
  kImageRecord,   // MXNet's RecordIO: image, label
  kDatum,         // caffe.Datum: image, label
  kTensorProtos,  // caffe2.TensorProtos: its tensors
  kTarMember,     // one field: the data after the header of a tar archive, which is checked once
  kMessage,       // tf.Example or tf.SequenceExample without a frame
};

enum class ValueType : int32_t { kNone, kBytes, kFloats, kInts };

// Values of one field, as they are stored in the record: bytes, floats, or protobuf's varints.
struct Piece {
  static constexpr int64_t kMostKept = 16;
  int32_t field;
  ValueType type;
  int64_t offset, size;
  int64_t count = 0;  // values; of bytes their number
  int64_t step = 0;   // of a feature list: the number of the Feature that has the values
  bool kept = false;  // the values are in `bytes`; reading a few bytes again would cost more
  std::array<uint8_t, kMostKept> bytes = {};
};

// The type and the number of values of one field of a record. dims: the shape that the record states, or zeros.
struct FieldInfo {
  ValueType type = ValueType::kNone;
  int64_t count = 0;  // values; of bytes their number
  int64_t dims[3] = {0, 0, 0};
  // Of examples only.
  int64_t strings = 0, longest = 0;  // number of strings, and the bytes of the longest one; each string is a piece
  // Of a feature list: the number of its Features, and the fewest and most values (of bytes: strings) of one of them.
  int64_t steps = 0, shortest_step = 0, longest_step = 0;
  bool present = false;    // of a feature list: the record has it, perhaps without values
  bool elsewhere = false;  // the record has a list of this name in place of a feature, or the other way round
  bool different = false;  // of a feature list: its Features are of different types

  // Elements of a step whose rows and strings are padded to the longest, and of all steps.
  int64_t StepSize() const { return longest_step * (type == ValueType::kBytes ? longest : 1); }
  int64_t PaddedSize() const { return steps * StepSize(); }
  // The number of strings, or of the rows of a feature list.
  int64_t NumRows() const { return type == ValueType::kBytes ? strings : steps; }
  // Whether it is a feature list without values, which is not missing.
  bool IsEmptyList() const { return type == ValueType::kNone && present; }
};

// How an output is made from the values of one field.
struct RecordOutput {
  // kCount: [number of values]. kRows: dims, one of which is -1 and follows from the number of values. kStated: the
  // three extents that the record states. kFixed: dims.
  // Of examples only, where shorter strings and rows are filled with zeros:
  // kString: [bytes] of exactly one string. kStrings: [dims..., bytes of the longest], where one of dims may be -1.
  // kPadded: [steps, most values of a step], and for strings [..., bytes of the longest]. kLengths: [strings], the
  // bytes of each, or [steps], the values of each.
  enum class Shape : int32_t { kCount, kRows, kStated, kFixed, kString, kStrings, kPadded, kLengths };

  std::string name, dtype;  // of the field and of the output, for messages
  int field;                // part * layout.fields + field
  ValueType type;           // the required type; a large element of bytes consists of several values
  int bytes;                // bytes of an element
  Shape shape;
  std::vector<int64_t> dims;
  // For records without the field: the bytes of all elements, whose shape is missing_dims; kFixed: of all or of one
  // element (empty: an error).
  std::string missing;
  std::vector<int64_t> missing_dims = {};
  bool required = false;  // a record without the field is an error

  // The number of axes.
  size_t ndim() const;
  // Writes the shape that the output has for a record with this field to `row`, [ndim]. Returns the number of elements,
  // or -1 if there are too many. The field must fit the output.
  int64_t ShapeFor(const FieldInfo& field, int64_t* row) const;
};

struct RecordLayout {
  RecordFormat format;
  std::vector<std::string> names;  // kExample, kMessage: names of the features
  int fields;                      // fields of a part
  int parts = 1;                   // parts of a record, each stored separately
  std::vector<RecordOutput> outputs = {};
  // kExample, kMessage: which names are those of feature lists, and of which only the first string is read. Empty:
  // none.
  std::vector<bool> lists = {}, first_strings = {};

  bool is_list(int field) const { return static_cast<size_t>(field) < lists.size() && lists[field]; }
  bool is_first_string(int field) const {
    return static_cast<size_t>(field) < first_strings.size() && first_strings[field];
  }
};

// An unsigned little-endian integer of at most 8 bytes.
inline uint64_t LittleEndian(const uint8_t* p, int bytes) {
  uint64_t x = 0;
  for (int i = 0; i < bytes; i++) x |= uint64_t{p[i]} << 8 * i;
  return x;
}

// One field of a protobuf message.
struct WireField {
  uint32_t number = 0;
  int wire = 0;                  // 0: varint, 1: 8 bytes, 2: bytes, 5: 4 bytes
  uint64_t value = 0;            // of a varint
  int64_t offset = 0, size = 0;  // of the contents
};

// The fields of a message that is part of a record.
class Message {
 public:
  Message(RecordBytes* record, int64_t begin, int64_t end) : record_(record), position_(begin), end_(end) {}

  // Reads the next field. False: the end, or the message is malformed (`bad`). Contents are only measured, not read.
  bool Next(WireField* f) {
    if (position_ >= end_ || bad_) return false;
    uint64_t key;
    if (!Varint(&key)) return SetBad();
    // The key of a field: its number in the upper bits (1 to 2^29 - 1), its wire type in the lower three.
    const uint64_t number = key >> 3;
    if (number == 0 || number >= uint64_t{1} << 29) return SetBad();
    f->number = static_cast<uint32_t>(number);
    f->wire = static_cast<int>(key & 7);
    f->offset = position_;
    if (f->wire == 0) {
      if (!Varint(&f->value)) return SetBad();
      f->size = position_ - f->offset;
      return true;
    }
    uint64_t size = f->wire == 1 ? 8 : 4;  // of the fixed wire types 1 and 5; type 2 states its size
    if (f->wire == 2) {
      if (!Varint(&size)) return SetBad();
      f->offset = position_;
    } else if (f->wire != 1 && f->wire != 5) {
      return SetBad();
    }
    if (size > static_cast<uint64_t>(end_ - position_)) return SetBad();
    f->size = static_cast<int64_t>(size);
    position_ += f->size;
    return true;
  }

  bool bad() const { return bad_; }

  // Reads a varint of at most 10 bytes, enough for 64 bits. False: it does not end within them, or within the message.
  bool Varint(uint64_t* x) {
    const int64_t n = std::min<int64_t>(end_ - position_, 10);
    const uint8_t* p = n > 0 ? record_->Peek(position_, n) : nullptr;
    if (p == nullptr) return false;
    *x = 0;
    for (int64_t i = 0; i < n; i++) {
      *x |= uint64_t{p[i] & 0x7Fu} << 7 * i;
      if (p[i] < 0x80) {
        position_ += i + 1;
        return true;
      }
    }
    return false;
  }

 private:
  bool SetBad() {
    bad_ = true;
    return false;
  }

  RecordBytes* record_;
  int64_t position_, end_;
  bool bad_ = false;
};

inline constexpr const char* kMalformed = "it is damaged: it can't be parsed";

// Collects the fields of a record while its parser finds them.
class FieldCollector {
 public:
  // info: has layout.fields entries. pieces: those of this record are appended.
  FieldCollector(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces)
      : layout(layout), record(*record), info_(info), pieces_(*pieces), first_(pieces->size()) {}

  const RecordLayout& layout;
  RecordBytes& record;

  FieldInfo& info(int field) { return info_[field]; }

  // Adds `count` values, which are `size` bytes of the record.
  void Add(int field, ValueType type, int64_t offset, int64_t size, int64_t count) {
    info_[field].type = type;
    info_[field].count += count;
    if (size > 0) pieces_.push_back({field, type, offset, size, count, info_[field].steps});
  }

  // Adds one of several strings. An empty one is a piece, too, as pieces are counted.
  void AddString(int field, int64_t offset, int64_t size) {
    FieldInfo& info = info_[field];
    info.type = ValueType::kBytes;
    info.count += size;
    info.strings++;
    info.longest = std::max(info.longest, size);
    pieces_.push_back({field, ValueType::kBytes, offset, size, size, info.steps});
  }

  // Forgets the values of a field: in protobuf the last of several fields with one number wins.
  void Clear(int field) {
    info_[field] = {};
    const auto first = pieces_.begin() + static_cast<std::ptrdiff_t>(first_);
    pieces_.erase(std::remove_if(first, pieces_.end(), [&](const Piece& p) { return p.field == field; }),
                  pieces_.end());
  }

  // Adds one float, or a packed list of them. False: the message is malformed.
  bool AddFloats(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 5) return true;  // another type is treated like an unknown field
    if (f.size % 4) return false;
    Add(field, ValueType::kFloats, f.offset, f.size, f.size / 4);
    return true;
  }

  // Adds one varint, or a packed list of them. Counts the bytes without a high bit, each of which ends a varint. False:
  // the message is malformed, or its bytes can't be read.
  bool AddInts(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 0) return true;
    int64_t count = 0, length = 0;
    for (int64_t offset = 0; offset < f.size;) {
      const int64_t n = std::min(f.size - offset, RecordBytes::kWindow);
      const uint8_t* p = record.Peek(f.offset + offset, n);
      if (p == nullptr) return false;
      int64_t i = 0;
      // Eight bytes at a time: those whose high bit is 0 are ends of varints.
      for (; i + 8 <= n; i += 8) {
        const uint64_t ends = ~LittleEndian(p + i, 8) & 0x8080808080808080u;
        if (ends == 0) {
          length += 8;
          if (length > 10) return false;
          continue;
        }
        if (length + std::countr_zero(ends) / 8 + 1 > 10) return false;
        count += std::popcount(ends);
        length = std::countl_zero(ends) / 8;  // bytes after the last end
      }
      for (; i < n; i++) {
        if (++length > 10) return false;
        if (p[i] < 0x80) count++, length = 0;
      }
      offset += n;
    }
    if (length != 0) return false;
    Add(field, ValueType::kInts, f.offset, f.size, count);
    return true;
  }

 private:
  FieldInfo* info_;
  std::vector<Piece>& pieces_;  // of several records
  const size_t first_;          // this record's first piece
};

// Each of these finds the fields of a record. Returns an error message, or an empty text.
std::string ParseExample(FieldCollector* fields);  // framed, as in TFRecord files
std::string ParseMessage(FieldCollector* fields);  // of an example, without a frame
std::string ParseImageRecord(FieldCollector* fields);
std::string ParseDatum(FieldCollector* fields);
std::string ParseTensorProtos(FieldCollector* fields);

// Checks the two checksums (masked CRC-32C) of a record of a TFRecord file: of its length, and of its data. Returns an
// error message, or an empty text.
std::string CheckSums(RecordBytes* record);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_PARSER_H_
