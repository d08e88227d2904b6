// The parsers of records, one for each format, and what they share. They accept any bytes.
#ifndef JAXDALI_FFI_HOST_RECORD_PARSER_H_
#define JAXDALI_FFI_HOST_RECORD_PARSER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi/host/record_bytes.h"

namespace jaxdali {

enum class RecordFormat : int32_t {
  kBytes,         // one field: the whole record
  kExample,       // tf.Example, framed as in TFRecord files: the features of given names
  kImageRecord,   // MXNet's RecordIO: image, label
  kDatum,         // caffe.Datum: image, label
  kTensorProtos,  // caffe2.TensorProtos: its tensors
  kTarMember,     // one field: the data after the header of a tar archive, which is checked once
};

enum class ValueType : int32_t { kNone, kBytes, kFloats, kInts };

// Values of one field, as they are stored in the record: bytes, floats, or protobuf's varints.
struct Piece {
  static constexpr int64_t kMostKept = 16;
  int32_t field;
  ValueType type;
  int64_t offset, size;
  bool kept = false;  // the values are in `bytes`; reading a few bytes again would cost more
  std::array<uint8_t, kMostKept> bytes = {};
};

// What the parser found for one field of a record. dims: the shape that the record states, or zeros.
struct FieldInfo {
  ValueType type = ValueType::kNone;
  int64_t count = 0;
  int64_t dims[3] = {0, 0, 0};
};

// How an output is made from the values of one field.
struct RecordOutput {
  // Its shape. kCount: the number of values. kRows: `dims`, after the axis that results. kStated: what the record
  // states. kFixed: `dims`.
  enum class Shape : int32_t { kCount, kRows, kStated, kFixed };

  std::string name, dtype;  // of the field and of the output, for messages
  int field;                // part * layout.fields + field
  ValueType type;           // the required type; a large element of bytes consists of several values
  int bytes;                // bytes of an element
  Shape shape;
  std::vector<int64_t> dims;
  std::string missing;  // for records without the field. kFixed: one element (empty: an error); kCount: all elements
};

struct RecordLayout {
  RecordFormat format;
  std::vector<std::string> names;  // kExample: names of the features
  int fields;                      // fields of a part
  int parts = 1;                   // parts of a record, each stored separately
  std::vector<RecordOutput> outputs = {};
};

inline uint64_t Little(const uint8_t* p, int bytes) {
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
  Message(RecordBytes* record, int64_t begin, int64_t end) : record_(record), at_(begin), end_(end) {}

  bool Next(WireField* f) {
    if (at_ >= end_ || bad_) return false;
    uint64_t key;
    if (!Varint(&key)) return Fail();
    const uint64_t number = key >> 3;
    if (number == 0 || number >= uint64_t{1} << 29) return Fail();
    f->number = static_cast<uint32_t>(number);
    f->wire = static_cast<int>(key & 7);
    f->offset = at_;
    if (f->wire == 0) {
      if (!Varint(&f->value)) return Fail();
      f->size = at_ - f->offset;
      return true;
    }
    uint64_t size = f->wire == 1 ? 8 : 4;
    if (f->wire == 2) {
      if (!Varint(&size)) return Fail();
      f->offset = at_;
    } else if (f->wire != 1 && f->wire != 5) {
      return Fail();
    }
    if (size > static_cast<uint64_t>(end_ - at_)) return Fail();
    f->size = static_cast<int64_t>(size);
    at_ += f->size;
    return true;
  }

  bool bad() const { return bad_; }

  bool Varint(uint64_t* x) {
    const int64_t n = std::min<int64_t>(end_ - at_, 10);
    const uint8_t* p = n > 0 ? record_->Peek(at_, n) : nullptr;
    if (p == nullptr) return false;
    *x = 0;
    for (int64_t i = 0; i < n; i++) {
      *x |= uint64_t{p[i] & 0x7Fu} << 7 * i;
      if (p[i] < 0x80) {
        at_ += i + 1;
        return true;
      }
    }
    return false;
  }

 private:
  bool Fail() {
    bad_ = true;
    return false;
  }

  RecordBytes* record_;
  int64_t at_, end_;
  bool bad_ = false;
};

inline constexpr const char* kMalformed = "it is damaged: it can't be parsed";

// Collects the fields of a record as its parser finds them.
class FoundFields {
 public:
  // info: has layout.fields entries. pieces: those of this record are appended.
  FoundFields(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces)
      : layout(layout), record(*record), info_(info), pieces_(*pieces), first_(pieces->size()) {}

  const RecordLayout& layout;
  RecordBytes& record;

  FieldInfo& info(int field) { return info_[field]; }

  void Add(int field, ValueType type, int64_t offset, int64_t size, int64_t count) {
    info_[field].type = type;
    info_[field].count += count;
    if (size > 0) pieces_.push_back({field, type, offset, size});
  }

  void Clear(int field) {
    info_[field] = {};
    const auto first = pieces_.begin() + static_cast<std::ptrdiff_t>(first_);
    pieces_.erase(std::remove_if(first, pieces_.end(), [&](const Piece& p) { return p.field == field; }),
                  pieces_.end());
  }

  // One float, or a packed list of them.
  bool AddFloats(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 5) return true;  // another type is treated like an unknown field
    if (f.size % 4) return false;
    Add(field, ValueType::kFloats, f.offset, f.size, f.size / 4);
    return true;
  }

  bool AddInts(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 0) return true;
    int64_t count = 0, length = 0;
    for (int64_t at = 0; at < f.size;) {
      const int64_t n = std::min(f.size - at, RecordBytes::kWindow);
      const uint8_t* p = record.Peek(f.offset + at, n);
      if (p == nullptr) return false;
      for (int64_t i = 0; i < n; i++) {
        if (++length > 10) return false;
        if (p[i] < 0x80) count++, length = 0;
      }
      at += n;
    }
    if (length != 0) return false;
    Add(field, ValueType::kInts, f.offset, f.size, count);
    return true;
  }

 private:
  FieldInfo* info_;
  std::vector<Piece>& pieces_;
  const size_t first_;
};

// Each finds the fields of a record. Returns an error message, or an empty text.
std::string ParseExample(FoundFields* found);
std::string ParseImageRecord(FoundFields* found);
std::string ParseDatum(FoundFields* found);
std::string ParseTensorProtos(FoundFields* found);

// Checks the two checksums of a record of a TFRecord file. Returns an error message, or an empty text.
std::string CheckSums(RecordBytes* record);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_RECORD_PARSER_H_
