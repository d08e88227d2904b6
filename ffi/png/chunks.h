// The chunks of a PNG file, as far as its pixels need them. What is not as it should be is for libpng.
#ifndef JAXDALI_FFI_PNG_CHUNKS_H_
#define JAXDALI_FFI_PNG_CHUNKS_H_

#include <cstdint>
#include <vector>

namespace jaxdali::png {

// Colour types, as the file has them.
inline constexpr int kGray = 0, kRgb = 2, kPalette = 3, kGrayAlpha = 4, kRgba = 6;

struct Piece {
  const uint8_t* data;
  int64_t size;
};

struct File {
  int64_t width, height;
  int bits, color;  // of a sample; colour type
  bool interlaced;
  uint8_t palette[256][4];  // red, green, blue, 0; black where the file has none
  std::vector<Piece> idat;  // the image data, in as many pieces as there are chunks
  int64_t idat_size;

  int samples() const { return color == kRgb ? 3 : color == kGrayAlpha ? 2 : color == kRgba ? 4 : 1; }
  int bits_per_pixel() const { return bits * samples(); }
  int64_t row_bytes(int64_t pixels) const { return (pixels * bits_per_pixel() + 7) / 8; }
};

// False: the file is damaged, or has something rare.
bool ReadChunks(const uint8_t* data, int64_t size, File* file);

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_CHUNKS_H_
