// The reader of markers. It accepts only files for which this project's decoders give libjpeg's result; the first
// irregularity makes it return false. Codes of markers are those of T.81, table B.1.
#include "ffi/jpeg/header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "ffi/jpeg/coefficients.h"

namespace jaxdali::jpeg {
namespace {

constexpr int kMaxSide = 65500;  // libjpeg's limit

// NaturalOrder as a table. Computing it anew for each quantizer takes half of the time of a header.
constexpr auto kNaturalOrder = [] {
  std::array<uint8_t, 64> places{};
  for (int k = 0; k < 64; k++) places[k] = NaturalOrder(k);
  return places;
}();

// The Huffman tables of T.81, Annex K.3, for files without tables, such as the frames of Motion JPEG.
HuffmanTable Standard(bool is_ac, std::initializer_list<uint8_t> count, std::initializer_list<uint8_t> value) {
  HuffmanTable table{};
  table.is_ac = is_ac;
  std::copy(count.begin(), count.end(), table.count);
  std::copy(value.begin(), value.end(), table.value);
  return table;
}

// By class (DC, AC), then for luminance and chrominance: tables K.3 and K.4, K.5 and K.6.
const HuffmanTable kStandard[2][2] = {
    {Standard(false, {0, 1, 5, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
     Standard(false, {0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})},
    {Standard(
         true, {0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D},
         {0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71,
          0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72,
          0x82, 0x09, 0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37,
          0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59,
          0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83,
          0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3,
          0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3,
          0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2,
          0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA}),
     Standard(true, {0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77},
              {0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13,
               0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62,
               0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26, 0x27, 0x28, 0x29,
               0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54,
               0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75,
               0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94,
               0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3,
               0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2,
               0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA,
               0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA})}};

class Reader {
 public:
  Reader(const uint8_t* data, int64_t size, Header* header, bool may_be_progressive)
      : data_(data), size_(size), header_(*header), may_be_progressive_(may_be_progressive) {
    for (int c = 0; c < 2; c++)
      for (int i = 0; i < 2; i++) huffman_[c][i] = kStandard[c][i];
  }

  // Reads segments until all components are coded, or to the end of a progressive file. Each has a marker, a length of
  // two bytes, which counts itself, and a payload.
  bool Read() {
    header_ = {};
    if (size_ < 4 || data_[0] != 0xFF || data_[1] != 0xD8) return false;  // SOI
    position_ = 2;
    while (header_.components.empty() || header_.progressive || num_coded_ < header_.components.size()) {
      if (position_ >= size_ || data_[position_] != 0xFF)
        return false;  // libjpeg skips bytes between markers with a warning
      while (position_ < size_ && data_[position_] == 0xFF) position_++;
      if (position_ >= size_) return false;
      const int marker = data_[position_++];
      if (marker == 0x01 || (marker & 0xF8) == 0xD0) continue;  // TEM and RST have no segment
      // EOI ends a progressive file. Elsewhere EOI and SOI (D8) are misplaced.
      if (marker == 0xD9 && header_.progressive) return HasCompleteScans();
      if (marker == 0xD8 || marker == 0xD9 || size_ - position_ < 2) return false;
      const int length = data_[position_] << 8 | data_[position_ + 1];
      if (length < 2 || length > size_ - position_) return false;
      const uint8_t *payload = data_ + position_ + 2, *end = data_ + position_ + length;
      position_ += length;
      if (!ReadSegment(marker, payload, end)) return false;
    }
    return true;
  }

 private:
  // Reads the payload [p, end) of a segment. False: the file is not supported.
  bool ReadSegment(int marker, const uint8_t* p, const uint8_t* end) {
    switch (marker) {
      case 0xC0:  // SOF0 and SOF1: baseline, extended sequential
      case 0xC1:
        return ReadFrame(p, end);
      case 0xC2:  // SOF2: progressive
        header_.progressive = true;
        return may_be_progressive_ && ReadFrame(p, end);
      case 0xC4:  // DHT
        return ReadHuffmanTables(p, end);
      case 0xDA:  // SOS
        return header_.progressive ? ReadProgressiveScan(p, end) : ReadSequentialScan(p, end);
      case 0xDB:  // DQT
        return ReadQuantizers(p, end);
      case 0xDD:  // DRI: restart interval
        if (end - p != 2) return false;
        restart_interval_ = p[0] << 8 | p[1];
        return true;
      case 0xE0:  // APP0: JFIF (T.871)
        if (end - p >= 14 && std::memcmp(p, "JFIF", 5) == 0) header_.jfif = true;
        return true;
      case 0xEE:  // APP14: Adobe, whose byte 11 is the colour transform
        if (end - p >= 12 && std::memcmp(p, "Adobe", 5) == 0) header_.adobe = true, header_.adobe_transform = p[11];
        return true;
      default:  // neither application data nor a comment: other frames, arithmetic coding, unknown markers
        return (marker & 0xF0) == 0xE0 || marker == 0xFE;
    }
  }

  // Frame header (B.2.2): precision, height, width, and for each component its identifier, sampling factors and
  // quantization table.
  bool ReadFrame(const uint8_t* p, const uint8_t* end) {
    // Only one frame, with 8 bits per sample.
    if (!header_.components.empty() || end - p < 6 || p[0] != 8) return false;
    header_.height = p[1] << 8 | p[2];
    header_.width = p[3] << 8 | p[4];
    const int n = p[5];
    // A height of 0 means that a DNL segment gives it later (B.2.5), which libjpeg does not support either.
    if (header_.height < 1 || header_.height > kMaxSide || header_.width < 1 || header_.width > kMaxSide) return false;
    if (n < 1 || n > 4 || end - p != 6 + 3 * n) return false;
    for (p += 6; p < end; p += 3) {
      // Sampling factors are two halves of a byte.
      FrameComponent c{p[0], p[1] >> 4, p[1] & 15, p[2], {}};
      if (c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.quantizer_slot > 3) return false;
      for (const FrameComponent& previous : header_.components)
        if (previous.id == c.id) return false;
      header_.components.push_back(c);
    }
    is_coded_.assign(n, false);
    std::memset(missing_bits_, -1, sizeof missing_bits_);
    return true;
  }

  // Quantization tables (B.2.4.1): 64 values of 8 or 16 bits in zigzag order.
  bool ReadQuantizers(const uint8_t* p, const uint8_t* end) {
    while (p < end) {
      const int is_wide = *p >> 4, slot = *p & 15;  // Pq and Tq
      p++;
      if (slot > 3 || is_wide > 1 || end - p < 64 * (1 + is_wide)) return false;
      for (int k = 0; k < 64; k++, p += 1 + is_wide)
        quantizer_[slot][kNaturalOrder[k]] = static_cast<uint16_t>(is_wide ? p[0] << 8 | p[1] : p[0]);
      has_quantizer_[slot] = true;
    }
    return true;
  }

  // Huffman tables (B.2.4.2): the numbers of codes of 1 to 16 bits, then their values.
  bool ReadHuffmanTables(const uint8_t* p, const uint8_t* end) {
    while (p < end) {
      const int is_ac = *p >> 4, slot = *p & 15;  // Tc and Th
      p++;
      if (is_ac > 1 || slot > 3 || end - p < 16) return false;
      HuffmanTable table{};
      // Kraft's inequality, code length by code length: `code` is the first unused code.
      table.is_ac = static_cast<uint8_t>(is_ac);
      int code = 0, sum = 0;
      for (int length = 0; length < 16; length++, code <<= 1) {
        table.count[length] = p[length];
        sum += p[length];
        code += p[length];
        if (p[length] && code >= 2 << length) return false;  // more codes than exist; the code of all ones is not valid
      }
      p += 16;
      if (sum > 256 || end - p < sum) return false;
      std::memcpy(table.value, p, static_cast<size_t>(sum));
      p += sum;
      if (!is_ac && std::any_of(table.value, table.value + sum, [](int size) { return size > 15; })) return false;
      huffman_[is_ac][slot] = table;
      has_huffman_[is_ac][slot] = true;
    }
    return true;
  }

  // Scan header (B.2.3): number of components, for each its identifier and its tables, then Ss, Se, Ah and Al.
  bool ReadSequentialScan(const uint8_t* p, const uint8_t* end) {
    const int n = p < end ? *p : 0;
    if (n < 1 || n > static_cast<int>(header_.components.size()) || end - p != 4 + 2 * n) return false;
    // Sequential scans have Ss = 0, Se = 63, Ah = Al = 0 (B.2.3).
    if (end[-3] != 0 || end[-2] != 63 || end[-1] != 0) return false;
    Scan scan{};
    int previous = -1;
    for (p++; p < end - 3; p += 2) {
      const int dc = p[1] >> 4, ac = p[1] & 15;  // Td and Ta: the component's tables
      const auto frame_component = std::find_if(header_.components.begin(), header_.components.end(),
                                                [&](const FrameComponent& c) { return c.id == p[0]; });
      if (frame_component == header_.components.end() || dc > 3 || ac > 3 || !HasTable(/*is_ac=*/0, dc) ||
          !HasTable(/*is_ac=*/1, ac) || !has_quantizer_[frame_component->quantizer_slot])
        return false;
      const int c = static_cast<int>(frame_component - header_.components.begin());
      // Components come in the order of the frame, and in one scan each.
      if (c <= previous || is_coded_[c]) return false;
      previous = c;
      is_coded_[c] = true;
      num_coded_++;
      std::copy_n(quantizer_[frame_component->quantizer_slot], 64, frame_component->quantizer);
      scan.components.push_back({c, TableIndex(huffman_[0][dc]), TableIndex(huffman_[1][ac])});
    }
    scan.restart_interval = restart_interval_;
    scan.begin = position_;
    // Another scan follows: its header is searched for.
    if (num_coded_ < header_.components.size()) {
      while (size_ - position_ >= 2 && !EndsScan(data_ + position_)) position_++;
      if (size_ - position_ < 2) return false;
    } else {
      position_ = size_;
    }
    scan.end = position_;
    header_.scans.push_back(scan);
    return scan.end > scan.begin;
  }

  // The same for a progressive file, with its rules (G.1.1.1): DC and AC in separate scans, AC of one component each.
  bool ReadProgressiveScan(const uint8_t* p, const uint8_t* end) {
    const int n = p < end ? *p : 0;
    if (n < 1 || n > static_cast<int>(header_.components.size()) || end - p != 4 + 2 * n) return false;
    Scan scan{};
    // Ss, Se, then Ah and Al, two halves of a byte.
    scan.first = end[-3], scan.last = end[-2], scan.high = end[-1] >> 4, scan.low = end[-1] & 15;
    const bool is_dc = scan.first == 0;
    // A DC scan has only coefficient 0; an AC scan has a band of one component (G.1.1.1.1).
    if (is_dc ? scan.last != 0 : n != 1 || scan.last < scan.first || scan.last > 63) return false;
    // A refinement adds exactly one bit, Al = Ah - 1.
    if (scan.low > 13 || (scan.high != 0 && scan.low != scan.high - 1)) return false;
    int previous = -1, blocks = 0;
    for (p++; p < end - 3; p += 2) {
      const int dc = p[1] >> 4, ac = p[1] & 15;  // Td and Ta: the component's tables
      const auto frame_component = std::find_if(header_.components.begin(), header_.components.end(),
                                                [&](const FrameComponent& c) { return c.id == p[0]; });
      if (frame_component == header_.components.end() || dc > 3 || ac > 3 ||
          !has_quantizer_[frame_component->quantizer_slot])
        return false;
      const int c = static_cast<int>(frame_component - header_.components.begin());
      if (c <= previous) return false;
      previous = c;
      blocks += frame_component->h * frame_component->v;
      if (!is_coded_[c]) std::copy_n(quantizer_[frame_component->quantizer_slot], 64, frame_component->quantizer);
      is_coded_[c] = true;
      // A scan has only the tables that it reads codes of: a refinement of DC has none.
      ScanComponent component{c, /*dc=*/-1, /*ac=*/-1};
      if (is_dc && scan.high == 0) {
        if (!HasTable(/*is_ac=*/0, dc)) return false;
        component.dc = TableIndex(huffman_[0][dc]);
      } else if (!is_dc) {
        if (!HasTable(/*is_ac=*/1, ac)) return false;
        component.ac = TableIndex(huffman_[1][ac]);
      }
      // AC before DC. This is left to libjpeg, which warns of it.
      if (!is_dc && missing_bits_[c][0] < 0) return false;
      // A first scan comes once, and each refinement continues at the bit where the last scan of the coefficient
      // stopped.
      for (int k = scan.first; k <= scan.last; k++) {
        if (missing_bits_[c][k] != (scan.high ? scan.high : -1)) return false;
        missing_bits_[c][k] = static_cast<int8_t>(scan.low);
      }
      scan.components.push_back(component);
    }
    // At most 10 blocks in an MCU (B.2.3).
    if (n > 1 && blocks > 10) return false;
    scan.restart_interval = restart_interval_;
    scan.begin = position_;
    // The data end at the next marker other than RST.
    for (;; position_++) {
      const auto* ff =
          static_cast<const uint8_t*>(std::memchr(data_ + position_, 0xFF, static_cast<size_t>(size_ - position_)));
      if (!ff || data_ + size_ - ff < 2) return false;
      position_ = ff - data_;
      if (EndsScan(ff)) break;
    }
    scan.end = position_;
    header_.scans.push_back(scan);
    return static_cast<int>(header_.scans.size()) <= kMostScans;
  }

  // libjpeg smooths images in which some of the first coefficients are incomplete.
  bool HasCompleteScans() const {
    for (size_t c = 0; c < header_.components.size(); c++)
      for (int k = 0; k < kCheckedCoefficients; k++)
        if (missing_bits_[c][k] != 0) return false;
    return true;
  }

  // A sequential file without tables, such as a frame of Motion JPEG, gets the standard ones; a progressive one does
  // not.
  bool HasTable(int is_ac, int slot) const { return has_huffman_[is_ac][slot] || (!header_.progressive && slot < 2); }

  // A marker other than RST ends a scan. FF 00 is stuffing, FF FF a fill byte.
  static bool EndsScan(const uint8_t* p) { return p[0] == 0xFF && p[1] != 0 && p[1] != 0xFF && (p[1] & 0xF8) != 0xD0; }

  // The index of a table in Header::tables, to which it is added if it is new.
  int TableIndex(const HuffmanTable& table) {
    std::vector<HuffmanTable>& tables = header_.tables;
    size_t i = 0;
    while (i < tables.size() && std::memcmp(&tables[i], &table, sizeof table) != 0) i++;
    if (i == tables.size()) tables.push_back(table);
    return static_cast<int>(i);
  }

  const uint8_t* data_;
  int64_t size_, position_ = 0;  // of the file; of the next byte
  Header& header_;
  const bool may_be_progressive_;
  static constexpr int kMostScans = 100;  // libjpeg-turbo decodes files with more
  static constexpr int kCheckedCoefficients = 10;
  int8_t missing_bits_[4][64];  // low bits of each coefficient that no scan has transmitted; -1: all bits are missing
  size_t num_coded_ = 0;        // components that have a scan
  std::vector<bool> is_coded_;  // by component
  // The file's tables so far, by slot; Huffman tables by class (DC, AC) and slot, at first the standard ones.
  uint16_t quantizer_[4][64];
  bool has_quantizer_[4] = {};
  HuffmanTable huffman_[2][4];
  bool has_huffman_[2][4] = {};
  int restart_interval_ = 0;
};

}  // namespace

// The colour space of a file with one, three or four components, as libjpeg finds it.
ColorTransform TransformOf(const Header& h) {
  if (h.components.size() == 1) return ColorTransform::kGray;
  // Adobe's files store inverted CMYK, as YCCK if the transform says so. T.81 itself defines no colours.
  if (h.components.size() == 4)
    return !h.adobe                 ? ColorTransform::kCmyk
           : h.adobe_transform == 0 ? ColorTransform::kInvertedCmyk
                                    : ColorTransform::kInvertedYcck;
  // JFIF always means YCbCr, even if an Adobe marker says RGB, as in libjpeg.
  if (h.jfif) return ColorTransform::kYcc;
  if (h.adobe) return h.adobe_transform == 0 ? ColorTransform::kRgb : ColorTransform::kYcc;
  const bool rgb = h.components[0].id == 'R' && h.components[1].id == 'G' && h.components[2].id == 'B';
  return rgb ? ColorTransform::kRgb : ColorTransform::kYcc;
}

bool ReadHeader(const uint8_t* data, int64_t size, Header* header, bool may_be_progressive) {
  return Reader(data, size, header, may_be_progressive).Read();
}

}  // namespace jaxdali::jpeg
