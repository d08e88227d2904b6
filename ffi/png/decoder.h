// Decodes PNG files on the CPU, row by row, with the same bits as libpng in less than half the time.
//
// It supports complete files of all colour types, depths and filters, interlaced or not. It leaves every file that
// shows any damage to libpng, from the first byte on, so that the results for damaged files are exactly libpng's. It
// also leaves images to libpng that are too large to decompress into memory at once, as libdeflate does.
//
//   chunks (chunks.h) -> bytes of filtered rows, by libdeflate -> rows (unfilter.h) -> values of pixels
#ifndef JAXDALI_FFI_PNG_DECODER_H_
#define JAXDALI_FFI_PNG_DECODER_H_

#include <cstdint>

#include "ffi/common/kept_memory.h"
#include "ffi/png/chunks.h"

struct libdeflate_decompressor;

namespace jaxdali::png {

// One per thread. It keeps its buffers.
class Decoder {
 public:
  Decoder() = default;
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Begins with a file. The first needed row is first_row; rows from end_row on are not needed. False: the file is not
  // supported. `indices`: the rows of a file with a palette are its indices in place of colours.
  bool Start(const uint8_t* data, int64_t size, int64_t first_row, int64_t end_row, bool indices = false);
  int64_t width() const { return file_.width; }
  int64_t height() const { return file_.height; }
  // Channels of the values in rows. Transparency, of palettes and of a colour, is left out.
  int channels() const { return file_.color == kPalette && !indices_ ? 3 : file_.samples(); }
  int depth() const { return file_.bits == 16 ? 16 : 8; }

  // The next row, beginning with the first needed one: its whole width, and no byte more.
  void NextRow(uint8_t* values);

 private:
  bool Inflate(int64_t bytes);
  void BeginRows(int64_t rows, int64_t pixels);
  const uint8_t* NextUnfiltered();
  void Expand(const uint8_t* row, int64_t pixels, uint8_t* values) const;
  void Deinterlace();

  File file_;
  bool indices_ = false;  // rows are indices of a palette in place of colours
  libdeflate_decompressor* inflate_ = nullptr;
  KeptMemory packed_memory_, filtered_memory_;  // the data of several chunks in one piece; the decompressed rows
  KeptMemory rows_memory_, raster_memory_;      // for `rows_`; the raster of an interlaced file
  const uint8_t* filtered_ = nullptr;           // the next row, with the byte of its filter
  uint8_t* rows_[3] = {};                       // the row above, this one, the one below
  int64_t rows_left_ = 0;                       // in the image, or in a pass
  bool has_row_below_ = false;                  // the row below is already unfiltered
  int64_t row_bytes_ = 0, pixel_bytes_ = 0;  // of a row that is still packed; from a byte to that of the pixel before
  const uint8_t* raster_ = nullptr;          // interlaced files: the next row
};

}  // namespace jaxdali::png

#endif  // JAXDALI_FFI_PNG_DECODER_H_
