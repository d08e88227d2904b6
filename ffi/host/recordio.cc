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
  explicit ImageRecordParser(FoundFields* found) : found_(*found) {}

  // RecordIO stores parts. Each part has a magic word, a word of kind (3 bits) and length (29 bits), and bytes that are
  // padded to 4. A payload that contains the magic word is split there, and the word is left out. Payload: u32 number
  // of labels, f32 label, u64[2], that many f32, and the image.
  std::string Parse() {
    constexpr uint32_t kMagic = 0xCED7230A;
    constexpr int64_t kHead = 24;
    std::vector<Piece> parts;
    int64_t total = 0;
    for (int64_t at = 0;;) {
      const uint8_t* p = at + 8 <= found_.record.size() ? found_.record.Peek(at, 8) : nullptr;
      if (p == nullptr) return at ? "its last part is missing" : "it is too short for a record";
      if (Little(p, 4) != kMagic) return "no record begins there: the index is of another file, or the file is damaged";
      const auto word = static_cast<uint32_t>(Little(p + 4, 4));
      const int64_t length = word & ((1u << 29) - 1);
      const uint32_t kind = word >> 29;  // 0: whole, 1: first, 2: middle, 3: last part
      if (at == 0 ? kind > 1 : kind < 2 || kind > 3) return kMalformed;
      if (at) parts.push_back({1, ValueType::kBytes, at, 4}), total += 4;  // the magic word that was left out
      if (length > found_.record.size() - at - 8)
        return "it ends early: its header says " + std::to_string(length) + " bytes";
      parts.push_back({1, ValueType::kBytes, at + 8, length});
      total += length;
      if (kind == 0 || kind == 3) break;
      at += 8 + (length + 3) / 4 * 4;
    }
    const bool has_head = parts[0].size >= kHead;
    std::array<uint8_t, kHead> head;
    if (!Take(&parts, head.data(), kHead)) return "it is too short for an image record";
    const auto labels = static_cast<int64_t>(Little(head.data(), 4));
    if (labels > (total - kHead) / 4) return "it is too short for its " + std::to_string(labels) + " labels";
    if (labels == 0) {
      if (!has_head) return kMalformed;
      found_.Add(1, ValueType::kFloats, 12, 4, 1);
    } else {
      for (int64_t left = 4 * labels; left > 0;) {
        Piece& p = parts.front();
        const int64_t n = std::min(left, p.size);
        if (n % 4) return kMalformed;
        found_.Add(1, ValueType::kFloats, p.offset, n, n / 4);
        left -= n;
        p.offset += n;
        p.size -= n;
        if (p.size == 0) parts.erase(parts.begin());
      }
    }
    found_.info(0).type = ValueType::kBytes;
    for (const Piece& p : parts) found_.Add(0, ValueType::kBytes, p.offset, p.size, p.size);
    return {};
  }

 private:
  bool Take(std::vector<Piece>* parts, uint8_t* to, int64_t n) {
    while (n > 0 && !parts->empty()) {
      Piece& p = parts->front();
      const int64_t some = std::min(n, p.size);
      const uint8_t* from = some ? found_.record.Peek(p.offset, some) : nullptr;
      if (some && from == nullptr) return false;
      std::copy(from, from + some, to);
      to += some;
      n -= some;
      p.offset += some;
      p.size -= some;
      if (p.size == 0 && (n > 0 || parts->size() > 1)) parts->erase(parts->begin());
    }
    return n == 0;
  }

  FoundFields& found_;
};

}  // namespace

std::string ParseImageRecord(FoundFields* found) { return ImageRecordParser(found).Parse(); }

}  // namespace jaxdali
