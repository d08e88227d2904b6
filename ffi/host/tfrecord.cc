// The parser of tf.Example and tf.SequenceExample, by itself or in TFRecord's frame: u64 length, its masked CRC-32C,
// data, their masked CRC-32C. All numbers are little-endian. So a framed record is 16 bytes longer than its data, which
// begin at byte 12.
#include <algorithm>
#include <cstring>
#include <string>

#include "ffi/host/crc32c.h"
#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// Finds the features and feature lists whose names the layout has.
class ExampleParser {
 public:
  explicit ExampleParser(FieldCollector* fields) : fields_(*fields) {}

  // Checks the frame of a record in a TFRecord file, and parses its message.
  std::string ParseFramed() {
    // The length, 8 bytes, and its checksum, 4 bytes. The data follow, and their checksum, 4 bytes.
    const uint8_t* head = fields_.record.size() >= 16 ? fields_.record.Peek(0, 12) : nullptr;
    if (head == nullptr) return "it is too short for a record";
    const uint64_t length = LittleEndian(head, 8);
    // 16: the length, its checksum, and the checksum of the data.
    if (length != static_cast<uint64_t>(fields_.record.size() - 16))
      return "its header says " + std::to_string(length) + " bytes, the index " +
             std::to_string(fields_.record.size() - 16) + ": the index is of another file, or the file is damaged";
    return Parse(/*begin=*/12, /*end=*/fields_.record.size() - 4);
  }

  // Finds the layout's features and feature lists in the message [begin, end) of the record:
  // message Example { Features features = 1; }
  // message SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
  // message Features { map<string, Feature> feature = 1; };
  // message FeatureLists { map<string, FeatureList> feature_list = 1; };
  // message FeatureList { repeated Feature feature = 1; };
  // message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
  // Returns an error message, or an empty text.
  std::string Parse(int64_t begin, int64_t end) {
    Message example(&fields_.record, begin, end);
    for (WireField map; example.Next(&map);) {
      // Unknown fields are skipped, as protobuf does.
      if (map.number > 2 || map.wire != 2) continue;
      Message entries(&fields_.record, map.offset, map.offset + map.size);
      for (WireField entry; entries.Next(&entry);) {
        if (entry.number != 1 || entry.wire != 2) continue;
        if (!ParseEntry(entry, /*is_list=*/map.number == 2)) return kMalformed;
      }
      if (entries.bad()) return kMalformed;
    }
    return example.bad() ? kMalformed : "";
  }

 private:
  // Reads an entry of a protobuf map, a message {1: key, 2: value}, if the layout has a feature of this name. is_list:
  // the value is a feature list. False: the entry is malformed.
  bool ParseEntry(const WireField& entry, bool is_list) {
    Message parts(&fields_.record, entry.offset, entry.offset + entry.size);
    int64_t key = 0, key_size = 0, value = 0, value_size = 0;
    for (WireField f; parts.Next(&f);) {
      if (f.wire != 2) continue;
      if (f.number == 1) key = f.offset, key_size = f.size;
      if (f.number == 2) value = f.offset, value_size = f.size;
    }
    if (parts.bad()) return false;
    for (int k = 0; k < fields_.layout.fields; k++) {
      const std::string& name = fields_.layout.names[k];
      if (static_cast<int64_t>(name.size()) != key_size || key_size > RecordBytes::kWindow) continue;
      const uint8_t* p = key_size ? fields_.record.Peek(key, key_size) : nullptr;
      if (key_size && (p == nullptr || std::memcmp(p, name.data(), name.size()) != 0)) continue;
      if (is_list != fields_.layout.is_list(k)) {
        fields_.info(k).elsewhere = true;
        continue;
      }
      // Several entries may have one key. The last one wins, as in protobuf's maps.
      const bool elsewhere = fields_.info(k).elsewhere;
      fields_.Clear(k);
      fields_.info(k).elsewhere = elsewhere;
      fields_.info(k).present = is_list;
      if (!(is_list ? ParseList(k, value, value + value_size) : ParseFeature(k, value, value + value_size)))
        return false;
    }
    return true;
  }

  // Finds the values of a FeatureList message, [begin, end) of the record, for field k. False: it is malformed.
  bool ParseList(int k, int64_t begin, int64_t end) {
    Message list(&fields_.record, begin, end);
    for (WireField f; list.Next(&f);) {
      if (f.number != 1 || f.wire != 2) continue;
      FieldInfo& info = fields_.info(k);
      const int64_t before = Values(info);
      if (!ParseFeature(k, f.offset, f.offset + f.size)) return false;
      const int64_t values = Values(info) - before;
      info.shortest_step = info.steps ? std::min(info.shortest_step, values) : values;
      info.longest_step = std::max(info.longest_step, values);
      info.steps++;
    }
    return !list.bad();
  }

  // The number of values so far.
  static int64_t Values(const FieldInfo& info) { return info.type == ValueType::kBytes ? info.strings : info.count; }

  // Finds the values of a Feature message, [begin, end) of the record, for field k. False: it is malformed.
  bool ParseFeature(int k, int64_t begin, int64_t end) {
    static constexpr ValueType kTypes[] = {ValueType::kBytes, ValueType::kFloats, ValueType::kInts};
    Message feature(&fields_.record, begin, end);
    for (WireField list; feature.Next(&list);) {
      if (list.number > 3 || list.wire != 2) continue;
      const ValueType type = kTypes[list.number - 1];
      FieldInfo& info = fields_.info(k);
      if (fields_.layout.is_list(k)) {
        // Values of another type than those before them can't be part of one output.
        if (info.type != ValueType::kNone && info.type != type) info.different = true;
        if (info.different) continue;
      } else if (info.type != type) {
        // The last of several kinds wins: it is a oneof.
        const bool elsewhere = info.elsewhere;
        fields_.Clear(k);
        info.elsewhere = elsewhere;
      }
      info.type = type;
      Message values(&fields_.record, list.offset, list.offset + list.size);
      for (WireField f; values.Next(&f);) {
        if (f.number != 1) continue;
        if (type == ValueType::kBytes) {
          const bool is_dropped = info.strings > 0 && fields_.layout.is_first_string(k);
          if (f.wire == 2 && !is_dropped) fields_.AddString(k, f.offset, f.size);
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

std::string ParseExample(FieldCollector* fields) { return ExampleParser(fields).ParseFramed(); }

std::string ParseMessage(FieldCollector* fields) { return ExampleParser(fields).Parse(0, fields->record.size()); }

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
