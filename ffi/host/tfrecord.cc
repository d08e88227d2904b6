#include <cstring>
#include <string>

#include "ffi/host/crc32c.h"
#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// tf.Example, framed as in TFRecord files.
class ExampleParser {
 public:
  explicit ExampleParser(FoundFields* found) : found_(*found) {}

  // message Example { Features features = 1; }; message Features { map<string, Feature> feature = 1; };
  // message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
  std::string Parse() {
    const uint8_t* head = found_.record.size() >= 16 ? found_.record.Peek(0, 12) : nullptr;
    if (head == nullptr) return "it is too short for a record";
    const uint64_t length = Little(head, 8);
    if (length != static_cast<uint64_t>(found_.record.size() - 16))
      return "its header says " + std::to_string(length) + " bytes, the index " +
             std::to_string(found_.record.size() - 16) + ": the index is of another file, or the file is damaged";
    Message example(&found_.record, 12, found_.record.size() - 4);
    for (WireField features; example.Next(&features);) {
      if (features.number != 1 || features.wire != 2) continue;
      Message entries(&found_.record, features.offset, features.offset + features.size);
      for (WireField entry; entries.Next(&entry);) {
        if (entry.number != 1 || entry.wire != 2) continue;
        if (!Entry(entry)) return kMalformed;
      }
      if (entries.bad()) return kMalformed;
    }
    return example.bad() ? kMalformed : "";
  }

 private:
  bool Entry(const WireField& entry) {
    Message parts(&found_.record, entry.offset, entry.offset + entry.size);
    int64_t key = 0, key_size = 0, value = 0, value_size = 0;
    for (WireField f; parts.Next(&f);) {
      if (f.wire != 2) continue;
      if (f.number == 1) key = f.offset, key_size = f.size;
      if (f.number == 2) value = f.offset, value_size = f.size;
    }
    if (parts.bad()) return false;
    for (int k = 0; k < found_.layout.fields; k++) {
      const std::string& name = found_.layout.names[k];
      if (static_cast<int64_t>(name.size()) != key_size || key_size > RecordBytes::kWindow) continue;
      const uint8_t* p = key_size ? found_.record.Peek(key, key_size) : nullptr;
      if (key_size && (p == nullptr || std::memcmp(p, name.data(), name.size()) != 0)) continue;
      found_.Clear(k);
      if (!Feature(k, value, value + value_size)) return false;
    }
    return true;
  }

  bool Feature(int k, int64_t begin, int64_t end) {
    static constexpr ValueType kTypes[] = {ValueType::kBytes, ValueType::kFloats, ValueType::kInts};
    Message feature(&found_.record, begin, end);
    bool found = false;  // a list of bytes has one element at most: the first
    for (WireField list; feature.Next(&list);) {
      if (list.number > 3 || list.wire != 2) continue;
      const ValueType type = kTypes[list.number - 1];
      if (found_.info(k).type != type) found_.Clear(k), found = false;
      found_.info(k).type = type;
      Message values(&found_.record, list.offset, list.offset + list.size);
      for (WireField f; values.Next(&f);) {
        if (f.number != 1) continue;
        if (type == ValueType::kBytes) {
          if (f.wire == 2 && !found) found_.Add(k, type, f.offset, f.size, f.size);
          found = found || f.wire == 2;
        } else if (!(type == ValueType::kFloats ? found_.AddFloats(k, f) : found_.AddInts(k, f))) {
          return false;
        }
      }
      if (values.bad()) return false;
    }
    return !feature.bad();
  }

  FoundFields& found_;
};

}  // namespace

std::string ParseExample(FoundFields* found) { return ExampleParser(found).Parse(); }

std::string CheckSums(RecordBytes* record) {
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; };
  const uint8_t* p = record->Peek(0, 12);
  if (p == nullptr) return "it is too short for a record";
  if (masked(Crc32c(0, p, 8)) != Little(p + 8, 4)) return "the checksum (CRC) of its length is wrong";
  uint32_t crc = 0;
  const int64_t end = record->size() - 4;
  for (int64_t at = 12; at < end;) {
    const int64_t n = std::min(end - at, RecordBytes::kWindow);
    p = record->Peek(at, n);
    if (p == nullptr) return "it ends early";
    crc = Crc32c(crc, p, n);
    at += n;
  }
  p = record->Peek(end, 4);
  return p != nullptr && masked(crc) == Little(p, 4) ? "" : "its checksum (CRC) is wrong";
}

}  // namespace jaxdali
