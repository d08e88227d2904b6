// Reads the markers of a JPEG file like libjpeg: ITU-T T.81, Annex B. Names are the standard's: frame, scan, component,
// restart interval, spectral selection (Ss, Se: `first`, `last`), successive approximation (Ah, Al: `high`, `low`).
#ifndef JAXDALI_FFI_JPEG_HEADER_H_
#define JAXDALI_FFI_JPEG_HEADER_H_

#include <cstdint>
#include <vector>

namespace jaxdali::jpeg {

// A Huffman table as stored in the file.
struct HuffmanTable {
  uint8_t is_ac;
  uint8_t count[16];  // numbers of codes of 1 to 16 bits
  uint8_t value[256];
  uint8_t unused[3];
};

// kInvertedYcck: like kInvertedCmyk, but the first three components are YCbCr for the inverted RGB.
enum class ColorTransform : int32_t { kYcc, kRgb, kGray, kCmyk, kInvertedCmyk, kInvertedYcck };

struct FrameComponent {
  int id, h, v;  // identifier; sampling factors, 1 to 4
  int quantizer_slot;
  uint16_t quantizer[64];  // natural order; the slot's contents when the component's scan began
};

struct ScanComponent {
  int component;  // index in the frame
  int dc, ac;     // indices of Header::tables; -1 where a scan of a progressive file has none
};

struct Scan {
  std::vector<ScanComponent> components;
  int restart_interval;  // MCUs; 0: none
  int64_t begin, end;  // entropy-coded bytes; the end of the last scan is that of the data, wherever its last marker is
  // Ss, Se, Ah, Al of a progressive file: the band of coefficients, the bit position before this scan and after it.
  int first, last, high, low;
};

// A baseline or extended sequential frame, Huffman-coded, 8 bits per sample, with each component in one scan. Or a
// progressive frame whose scans, in an order that the standard allows, transmit all bits of the most important
// coefficients.
struct Header {
  bool progressive;
  int width, height;
  std::vector<FrameComponent> components;
  std::vector<Scan> scans;
  std::vector<HuffmanTable> tables;  // the distinct tables that scans use
  bool jfif, adobe;
  int adobe_transform;
};

// The colour space of a file with one, three or four components: by the markers APP0 (JFIF, T.871) and APP14 (Adobe),
// and by the components' identifiers, as in libjpeg.
ColorTransform TransformOf(const Header& header);

// Reads the markers up to the last scan. False: a file of another kind, or a damaged one.
bool ReadHeader(const uint8_t* data, int64_t size, Header* header, bool may_be_progressive = false);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_HEADER_H_
