// The parser of tf.Example in TFRecord's frame: u64 length, its masked CRC-32C, data, their masked CRC-32C. All numbers
// are little-endian. So a record is 16 bytes longer than its data, which begin at byte 12.
#include <cstring>
#include <string>

#include "ffi/host/crc32c.h"
#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// Finds the features of a tf.Example whose names the layout has.
class ExampleParser {
 public:
  explicit ExampleParser(FieldCollector* fields) : fields_(*fields) {}

  // Finds the layout's features in the record's message:
  // message Example { Features features = 1; }; message Features { map<string, Feature> feature = 1; };
  // message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
  // Returns an error message, or an empty text.
  std::string Parse() {
    // The length, 8 bytes, and its checksum, 4 bytes. The data follow, and their checksum, 4 bytes.
    const uint8_t* head = fields_.record.size() >= 16 ? fields_.record.Peek(0, 12) : nullptr;
    if (head == nullptr) return "it is too short for a record";
    const uint64_t length = LittleEndian(head, 8);
    // 16: the length, its checksum, and the checksum of the data.
    if (length != static_cast<uint64_t>(fields_.record.size() - 16))
      return "its header says " + std::to_string(length) + " bytes, the index " +
             std::to_string(fields_.record.size() - 16) + ": the index is of another file, or the file is damaged";
    Message example(&fields_.record, /*begin=*/12, /*end=*/fields_.record.size() - 4);
    for (WireField features; example.Next(&features);) {
      // Unknown fields are skipped, as protobuf does.
      if (features.number != 1 || features.wire != 2) continue;
      Message entries(&fields_.record, features.offset, features.offset + features.size);
      for (WireField entry; entries.Next(&entry);) {
        if (entry.number != 1 || entry.wire != 2) continue;
        if (!ParseEntry(entry)) return kMalformed;
      }
      if (entries.bad()) return kMalformed;
    }
    return example.bad() ? kMalformed : "";
  }

 private:
  // Reads an entry of a protobuf map, a message {1: key, 2: value}, if the layout has a feature of this name. False: it
  // is malformed.
  bool ParseEntry(const WireField& entry) {
    Message parts(&fields_.record, entry.offset, entry.offset + entry.size);
    int64_t key = 0, key_size = 0, value = 0, value_size = 0;
    for (WireField f; parts.Next(&f);) {
      if (f.wire != 2) continue;
      if (f.number == 1) key = f.offset, key_size = f.size;
      if (f.number == 2) value = f.offset, value_size = f.size;
    }
    if (parts.bad()) return false;
    // Several fields may have one name. The last entry with a key wins, as in protobuf's maps.
    for (int k = 0; k < fields_.layout.fields; k++) {
      const std::string& name = fields_.layout.names[k];
      if (static_cast<int64_t>(name.size()) != key_size || key_size > RecordBytes::kWindow) continue;
      const uint8_t* p = key_size ? fields_.record.Peek(key, key_size) : nullptr;
      if (key_size && (p == nullptr || std::memcmp(p, name.data(), name.size()) != 0)) continue;
      fields_.Clear(k);
      if (!ParseFeature(k, value, value + value_size)) return false;
    }
    return true;
  }

  // Finds the values of a Feature message, [begin, end) of the record, for field k. False: it is malformed.
  bool ParseFeature(int k, int64_t begin, int64_t end) {
    static constexpr ValueType kTypes[] = {ValueType::kBytes, ValueType::kFloats, ValueType::kInts};
    Message feature(&fields_.record, begin, end);
    bool has_bytes = false;  // a list of bytes gives only its first element
    for (WireField list; feature.Next(&list);) {
      if (list.number > 3 || list.wire != 2) continue;
      const ValueType type = kTypes[list.number - 1];
      // The last of several kinds wins: it is a oneof.
      if (fields_.info(k).type != type) fields_.Clear(k), has_bytes = false;
      fields_.info(k).type = type;
      Message values(&fields_.record, list.offset, list.offset + list.size);
      for (WireField f; values.Next(&f);) {
        if (f.number != 1) continue;
        if (type == ValueType::kBytes) {
          if (f.wire == 2 && !has_bytes) fields_.Add(k, type, f.offset, f.size, f.size);
          has_bytes = has_bytes || f.wire == 2;
        } else if (!(type == ValueType::kFloats ? fields_.AddFloats(k, f) : fields_.AddInts(k, f))) {
          return false;
        }
      }
      if (values.bad()) return false;
    }
    return !feature.bad();
  }

  FieldCollector& fields_;
};

}  // namespace

std::string ParseExample(FieldCollector* fields) { return ExampleParser(fields).Parse(); }

// Checks the checksums of a TFRecord's length and data. Returns an error message, or an empty text.
std::string CheckSums(RecordBytes* record) {
  // TFRecord stores checksums rotated by 15 bits plus a constant, because a CRC of data that contain CRCs is weak.
  const auto mask = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; };
  const uint8_t* p = record->Peek(0, 12);  // the length, 8 bytes, and its checksum
  if (p == nullptr) return "it is too short for a record";
  if (mask(Crc32c(0, p, 8)) != LittleEndian(p + 8, 4)) return "the checksum (CRC) of its length is wrong";
  uint32_t crc = 0;
  const int64_t end = record->size() - 4;
  for (int64_t offset = 12; offset < end;) {
    const int64_t n = std::min(end - offset, RecordBytes::kWindow);
    p = record->Peek(offset, n);
    if (p == nullptr) return "it ends early";
    crc = Crc32c(crc, p, n);
    offset += n;
  }
  // The checksum of the data comes after them.
  p = record->Peek(end, 4);
  return p != nullptr && mask(crc) == LittleEndian(p, 4) ? "" : "its checksum (CRC) is wrong";
}

}  // namespace jaxdali
