// The chunks of a PNG file (ISO/IEC 15948, clause 5) that its pixels need: IHDR, PLTE and IDAT. Files with any
// irregularity are left to libpng.
#ifndef JAXDALI_FFI_PNG_CHUNKS_H_
#define JAXDALI_FFI_PNG_CHUNKS_H_

#include <cstdint>
#include <vector>

namespace jaxdali::png {

// Colour types, as stored in the file.
inline constexpr int kGray = 0, kRgb = 2, kPalette = 3, kGrayAlpha = 4, kRgba = 6;

struct Piece {
  const uint8_t* data;
  int64_t size;
};

struct File {
  int64_t width, height;
  int bits, color;  // bits of a sample; colour type
  bool interlaced;
  uint8_t palette[256][4];  // red, green, blue, 0; black beyond the file's entries
  std::vector<Piece> idat;  // the image data, one piece per chunk
  int64_t idat_size;

  int samples() const { return color == kRgb ? 3 : color == kGrayAlpha ? 2 : color == kRgba ? 4 : 1; }
  int bits_per_pixel() const { return bits * samples(); }
  int64_t row_bytes(int64_t pixels) const { return (pixels * bits_per_pixel() + 7) / 8; }
};

// Reads the chunks up to the end of the image data. False: the file is damaged, or uses a rare feature.
bool ReadChunks(const uint8_t* data, int64_t size, File* file);

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_CHUNKS_H_
