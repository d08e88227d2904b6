// The markers of a JPEG file: ITU-T T.81, Annex B, read as libjpeg does.
#ifndef JAXDALI_FFI_JPEG_HEADER_H_
#define JAXDALI_FFI_JPEG_HEADER_H_

#include <cstdint>
#include <vector>

namespace jaxdali::jpeg {

// A Huffman table as the file has it.
struct HuffmanTable {
  uint8_t is_ac;
  uint8_t count[16];  // of codes of 1 to 16 bits
  uint8_t value[256];
  uint8_t unused[3];
};

enum class ColorTransform : int32_t { kYcc, kRgb, kGray };

struct FrameComponent {
  int id, h, v;  // sampling factors
  int quantizer_slot;
  uint16_t quantizer[64];  // natural order; as the slot was when the component's scan began
};

struct ScanComponent {
  int component;  // of the frame
  int dc, ac;     // of Header::tables; of a progressive file -1 where the scan has none
};

struct Scan {
  std::vector<ScanComponent> components;
  int restart_interval;        // MCUs; 0: none
  int64_t begin, end;          // entropy-coded bytes; the last scan's end is the data's, wherever its last marker is
  int first, last, high, low;  // of a progressive file: spectral selection, successive approximation
};

// A baseline or extended sequential frame, Huffman coded, 8 bits a sample, each component in one scan. Or a progressive
// one whose scans, in an order that the standard allows, give all bits of the coefficients that matter most.
struct Header {
  bool progressive;
  int width, height;
  std::vector<FrameComponent> components;
  std::vector<Scan> scans;
  std::vector<HuffmanTable> tables;  // that scans use, different ones
  bool jfif, adobe;
  int adobe_transform;
};

// What the components of a file with one or three are.
ColorTransform TransformOf(const Header& header);

// False: another kind of file, or something is wrong with it.
bool ReadHeader(const uint8_t* data, int64_t size, Header* header, bool may_be_progressive = false);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_HEADER_H_
