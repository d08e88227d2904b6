// The markers of a JPEG file: ITU-T T.81, Annex B, read as libjpeg does.
#ifndef JAXDALI_FFI_JPEG_HEADER_H_
#define JAXDALI_FFI_JPEG_HEADER_H_

#include <cstdint>
#include <vector>

#include "ffi/cuda_jpeg/table.h"

namespace jaxdali::jpeg {

struct FrameComponent {
  int id, h, v;  // sampling factors
  int quantizer_slot;
  uint16_t quantizer[64];  // natural order; as the slot was when the component's scan began
};

struct ScanComponent {
  int component;  // of the frame
  int dc, ac;     // of Header::tables
};

struct Scan {
  std::vector<ScanComponent> components;
  int restart_interval;  // MCUs; 0: none
  int64_t begin, end;    // entropy-coded bytes; the last scan's end is the data's, wherever its last marker is
};

// A baseline or extended sequential frame, Huffman coded, 8 bits a sample, each component in one scan.
struct Header {
  int width, height;
  std::vector<FrameComponent> components;
  std::vector<Scan> scans;
  std::vector<HuffmanTable> tables;  // that scans use, different ones
  bool jfif, adobe;
  int adobe_transform;
};

// False: another kind of file, or something is wrong with it.
bool ReadHeader(const uint8_t* data, int64_t size, Header* header);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_HEADER_H_
