// The output of the CPU's decoders: it moves the rows of a stored raster into the output, cuts out the region, and
// converts colour space, element type and orientation. This file also declares the decoders.
#ifndef JAXDALI_FFI_CPU_CODECS_RASTER_OUTPUT_H_
#define JAXDALI_FFI_CPU_CODECS_RASTER_OUTPUT_H_

#include <cstdint>
#include <vector>

#include "ffi/cpu_codecs/pixels.h"
#include "ffi/decode/decode.h"

namespace jaxdali {

namespace jpeg {
class BaselineDecoder;  // ffi/jpeg/baseline.h
}

constexpr int kRows = 16;  // rows handed over at a time; they and their conversion stay in the cache

// Takes the stored raster from the top, some rows at a time, and writes them to their places in the upright image.
class RasterOutput {
 public:
  RasterOutput(const ImageInfo& info, const DecodeOptions& options, DType dtype, void* out);

  // The rows that are needed: first_row() to end_row() - 1 of the stored raster.
  int64_t first_row() const { return first_row_; }
  int64_t end_row() const { return first_row_ + height_; }
  bool whole() const { return whole_; }  // the region is the whole stored raster

  // row: the address of a row of the region in the output. direct: whether a decoder can write whole stored rows of
  // `depth` bits there, if they have the right channels. in_place: whether it can write the region's part of them
  // there.
  bool in_place(int depth) const { return placement_.upright() && dtype_ == StoredType(depth); }
  bool direct(int depth) const { return in_place(depth) && width_ == stored_width_; }
  uint8_t* row(int64_t y) const {
    return static_cast<uint8_t*>(out_) + (y - first_row_) * width_ * channels_ * SizeOf(dtype_);
  }

  // Tells that the rows have only `width` pixels, from stored column `left` on.
  void Narrow(int64_t left, int64_t width) {
    stored_width_ = width;
    first_column_ -= left;
  }

  // Call this before Put, which does not allocate.
  void Reserve(int depth) { scratch_.resize(static_cast<size_t>(kRows) * width_ * channels_ * (depth / 8) + 8); }

  // Takes n <= kRows needed rows from stored row y on, each of the stored width, with pixels of `channels` values of
  // `depth` bits: u8, u16 or f32.
  void Put(int64_t y, int n, const void* rows, int channels, int depth);
  // The same for 8-bit pixels that already have the channels of the output.
  void PutOrdered(int64_t y, int n, const uint8_t* rows);

 private:
  template <class S>
  void PutRows(int64_t y, int n, const S* rows, int channels);
  template <class S>
  void PlaceRows(int64_t y, int n, const S* rows, int64_t pitch);
  template <class S, class D>
  void PlaceAs(int64_t y, int n, const S* rows, int64_t pitch);
  template <class S, class D, class Channels>
  void PlaceChannels(int64_t y, int n, const S* rows, int64_t pitch, Channels channels);

  int64_t stored_width_;                               // pixels of a row that a decoder hands over
  int64_t first_row_, first_column_, height_, width_;  // the region; its column is counted in such a row
  bool whole_;
  ImageType type_;
  DType dtype_;
  void* out_;
  int channels_;                  // of the output
  Placement placement_;           // of the region's pixels in the output
  std::vector<uint8_t> scratch_;  // rows with the output's channels, before they are placed
};

// Converts 8-bit pixels with `channels` channels to the colour space of a type. Alpha is dropped, except for kAny.
void ConvertPixels(const uint8_t* from, int64_t pixels, int channels, ImageType type, uint8_t* to);

// The factor 1, 2, 4 or 8 by which a JPEG file of this size is scaled down to the raster in `info` (the smallest one
// that gives its size). 0: none of them does.
inline unsigned ScaleTo(unsigned width, unsigned height, const ImageInfo& info) {
  for (unsigned scale = 1; scale <= 8; scale *= 2)
    if ((width + scale - 1) / scale == static_cast<unsigned>(info.width) &&
        (height + scale - 1) / scale == static_cast<unsigned>(info.height))
      return scale;
  return 0;
}

// JPEG files have two decoders. False of DecodeJpegByBaseline: libjpeg-turbo must decode the file, from the first row
// on.
jpeg::BaselineDecoder& JpegDecoderOfThread();
bool DecodeJpegByBaseline(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                          jpeg::BaselineDecoder* decoder, RasterOutput* out);
Status DecodeJpegByTurbo(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out);
Status DecodeJpeg(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out);
// PNG files have two decoders, too.
bool DecodePngByLibdeflate(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                           RasterOutput* out);
Status DecodePngByLibpng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out);
Status DecodePng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                 RasterOutput* out);
Status DecodeWebp(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CPU_CODECS_RASTER_OUTPUT_H_
