// Decodes PNG files on the CPU, row by row, to the bit as libpng does, in less than half its time.
//
// Covered are whole files of all colour types, depths and filters, interlaced or not. What looks damaged in the least
// is for libpng, which sees it from the first byte on: what it makes of damage then stays what it is. So is what is so
// large that it is better not in memory at once, as libdeflate needs it.
//
//   chunks (chunks.h) -> bytes of filtered rows, by libdeflate -> rows (unfilter.h) -> values of pixels
#ifndef JAXDALI_FFI_PNG_DECODER_H_
#define JAXDALI_FFI_PNG_DECODER_H_

#include <cstdint>

#include "ffi/common/kept_memory.h"
#include "ffi/png/chunks.h"

struct libdeflate_decompressor;

namespace jaxdali::png {

// One per thread: it keeps its buffers.
class Decoder {
 public:
  Decoder() = default;
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Begins with a file and the first of its rows that is wanted; those behind end_row are not. False: not covered.
  bool Start(const uint8_t* data, int64_t size, int64_t first_row, int64_t end_row);
  int64_t width() const { return file_.width; }
  int64_t height() const { return file_.height; }
  // Of the values that rows have: transparency of palettes and of a colour is left out, as ours is.
  int channels() const { return file_.color == kPalette ? 3 : file_.samples(); }
  int depth() const { return file_.bits == 16 ? 16 : 8; }

  // The next row, from the first one that is wanted on: its whole width, and no byte more.
  void NextRow(uint8_t* values);

 private:
  bool Inflate(int64_t bytes);
  void BeginRows(int64_t rows, int64_t pixels);
  const uint8_t* NextUnfiltered();
  void Expand(const uint8_t* row, int64_t pixels, uint8_t* values) const;
  void Deinterlace();

  File file_;
  libdeflate_decompressor* inflate_ = nullptr;
  KeptMemory packed_memory_, filtered_memory_, rows_memory_, raster_memory_;
  const uint8_t* filtered_ = nullptr;  // the next row, with the byte of its filter
  uint8_t* rows_[3] = {};              // the row above, this one, the one below
  int64_t rows_left_ = 0;              // of the image, or of a pass
  bool has_below_ = false;             // that row is unfiltered, too
  int64_t row_bytes_ = 0, pixel_bytes_ = 0;
  const uint8_t* raster_ = nullptr;  // of an interlaced file: the next row
};

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_DECODER_H_
