// The parser of MXNet's RecordIO (dmlc-core, recordio.h) with the header of images (IRHeader): labels and an encoded
// image.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// A record of MXNet's RecordIO.
class ImageRecordParser {
 public:
  explicit ImageRecordParser(FieldCollector* fields) : fields_(*fields) {}

  // Finds the image (field 0) and the labels (field 1), as pieces of the parts. Returns an error message, or an empty
  // text.
  //
  // A record is stored in parts. Each part has a magic word, a word of kind (upper 3 bits) and length (lower 29 bits),
  // and bytes that are padded to a multiple of 4. A payload that contains the magic word is split there, and the word
  // is left out, so that a reader can find the start of a record anywhere in a file. Payload: u32 number of labels, f32
  // label, u64[2] ids, that many f32 labels, and the image. All numbers are little-endian.
  std::string Parse() {
    constexpr uint32_t kMagic = 0xCED7230A;
    constexpr int64_t kHeaderSize = 24;
    std::vector<Piece> parts;  // of the payload: only `offset` and `size` count
    int64_t total = 0;         // bytes of the payload
    for (int64_t offset = 0;;) {
      const uint8_t* p = offset + 8 <= fields_.record.size() ? fields_.record.Peek(offset, 8) : nullptr;
      if (p == nullptr) return offset ? "its last part is missing" : "it is too short for a record";
      if (LittleEndian(p, 4) != kMagic)
        return "no record begins there: the index is of another file, or the file is damaged";
      const auto word = static_cast<uint32_t>(LittleEndian(p + 4, 4));
      const int64_t length = word & ((1u << 29) - 1);
      const uint32_t kind = word >> 29;  // 0: whole, 1: first, 2: middle, 3: last part
      // The first part is whole (0) or first (1); those after it are middle (2) or last (3).
      if (offset == 0 ? kind > 1 : kind < 2 || kind > 3) return kMalformed;
      if (offset)
        parts.push_back({/*field=*/1, ValueType::kBytes, offset, 4}), total += 4;  // the magic word that was left out
      if (length > fields_.record.size() - offset - 8)
        return "it ends early: its header says " + std::to_string(length) + " bytes";
      parts.push_back({/*field=*/1, ValueType::kBytes, offset + 8, length});
      total += length;
      if (kind == 0 || kind == 3) break;
      offset += 8 + (length + 3) / 4 * 4;
    }
    // The magic word may occur within the header, so it may be spread over parts.
    const bool has_header = parts[0].size >= kHeaderSize;
    std::array<uint8_t, kHeaderSize> header;
    if (!TakeBytes(&parts, header.data(), kHeaderSize)) return "it is too short for an image record";
    const auto labels = static_cast<int64_t>(LittleEndian(header.data(), 4));
    if (labels > (total - kHeaderSize) / 4) return "it is too short for its " + std::to_string(labels) + " labels";
    if (labels == 0) {  // the one label is in the header, at byte 4 of the payload, 12 of the record
      if (!has_header) return kMalformed;
      fields_.Add(/*field=*/1, ValueType::kFloats, /*offset=*/12, /*size=*/4, /*count=*/1);
    } else {
      // A list of labels may go over several parts.
      for (int64_t bytes_left = 4 * labels; bytes_left > 0;) {
        Piece& p = parts.front();
        const int64_t n = std::min(bytes_left, p.size);
        if (n % 4) return kMalformed;
        fields_.Add(1, ValueType::kFloats, p.offset, n, n / 4);
        bytes_left -= n;
        p.offset += n;
        p.size -= n;
        if (p.size == 0) parts.erase(parts.begin());
      }
    }
    fields_.info(0).type = ValueType::kBytes;
    for (const Piece& p : parts) fields_.Add(0, ValueType::kBytes, p.offset, p.size, p.size);
    return {};
  }

 private:
  // Moves the first n bytes of the parts to `to`. An empty last part stays, so that the image has a piece. False: there
  // are fewer bytes.
  bool TakeBytes(std::vector<Piece>* parts, uint8_t* to, int64_t n) {
    while (n > 0 && !parts->empty()) {
      Piece& p = parts->front();
      const int64_t count = std::min(n, p.size);
      const uint8_t* bytes = count ? fields_.record.Peek(p.offset, count) : nullptr;
      if (count && bytes == nullptr) return false;
      std::copy(bytes, bytes + count, to);
      to += count;
      n -= count;
      p.offset += count;
      p.size -= count;
      if (p.size == 0 && (n > 0 || parts->size() > 1)) parts->erase(parts->begin());
    }
    return n == 0;
  }

  FieldCollector& fields_;
};

}  // namespace

std::string ParseImageRecord(FieldCollector* fields) { return ImageRecordParser(fields).Parse(); }

}  // namespace jaxdali
