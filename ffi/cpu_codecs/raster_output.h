// What the CPU's decoders share: the way of a stored raster's rows into the output, with the region cut out, in the
// right colour space, element type and orientation. And the decoders themselves.
#ifndef JAXDALI_FFI_RASTER_OUTPUT_H_
#define JAXDALI_FFI_RASTER_OUTPUT_H_

#include <cstdint>
#include <vector>

#include "ffi/cpu_codecs/pixels.h"
#include "ffi/decode/decode.h"

namespace jaxdali {

namespace jpeg {
class BaselineDecoder;  // ffi/jpeg/baseline.h
}

constexpr int kRows = 16;  // rows handed over at a time: they and their conversion stay in the cache

// Takes the stored raster from the top, some rows at a time, and writes them where the upright image has them.
class RasterOutput {
 public:
  RasterOutput(const ImageInfo& info, const DecodeOptions& options, DType dtype, void* out);

  // The rows that are wanted: from first_row() to end_row() - 1 of the stored raster.
  int64_t first_row() const { return first_row_; }
  int64_t end_row() const { return first_row_ + height_; }
  bool whole() const { return whole_; }  // all of the stored raster

  // A row's place in the output, when pixels of `depth` bits decoded into it need nothing more than the right channels;
  // in_place: and are the region's alone.
  bool in_place(int depth) const { return place_.upright() && dtype_ == (depth == 16 ? DType::kU16 : DType::kU8); }
  bool direct(int depth) const { return in_place(depth) && width_ == stored_width_; }
  uint8_t* row(int64_t y) const {
    return static_cast<uint8_t*>(out_) + (y - first_row_) * width_ * channels_ * SizeOf(dtype_);
  }

  // To be called before Put, which does not allocate.
  void Reserve(int depth) { scratch_.resize(static_cast<size_t>(kRows) * width_ * channels_ * (depth / 8) + 8); }

  // n <= kRows wanted rows from stored row y on, each the stored width of pixels of `channels` values of `depth` bits.
  void Put(int64_t y, int n, const void* rows, int channels, int depth);
  // The same for 8-bit pixels whose channels are those of the output already.
  void PutOrdered(int64_t y, int n, const uint8_t* rows);

 private:
  template <class S>
  void PutRows(int64_t y, int n, const S* rows, int channels);
  template <class S>
  void PlaceRows(int64_t y, int n, const S* rows, int64_t pitch);
  template <class S, class D>
  void PlaceAs(int64_t y, int n, const S* rows, int64_t pitch);
  template <class S, class D, int C>
  void PlaceChannels(int64_t y, int n, const S* rows, int64_t pitch);

  int64_t stored_width_, first_row_, first_column_, height_, width_;
  bool whole_;
  ImageType type_;
  DType dtype_;
  void* out_;
  int channels_;
  Placement place_;
  std::vector<uint8_t> scratch_;
};

// Pixels of so many channels of 8 bits in the colour space of a type. Alpha is dropped, but for kAny.
void ConvertPixels(const uint8_t* from, int64_t pixels, int channels, ImageType type, uint8_t* to);

// 1, 2, 4 or 8: the raster that is wanted is that part of a JPEG file's, the largest of these that has its size; 0: it
// is none of them.
inline unsigned ScaleTo(unsigned width, unsigned height, const ImageInfo& info) {
  for (unsigned scale = 1; scale <= 8; scale *= 2)
    if ((width + scale - 1) / scale == static_cast<unsigned>(info.width) &&
        (height + scale - 1) / scale == static_cast<unsigned>(info.height))
      return scale;
  return 0;
}

// JPEG comes from one of two decoders. False: it is for libjpeg-turbo, from the first row on.
bool DecodeJpegByBaseline(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                          jpeg::BaselineDecoder* decoder, RasterOutput* out);
Status DecodeJpegByTurbo(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out);
Status DecodeJpeg(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                  RasterOutput* out);
// And so does PNG.
bool DecodePngByOwn(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                    RasterOutput* out);
Status DecodePngByLibpng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out);
Status DecodePng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                 RasterOutput* out);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RASTER_OUTPUT_H_
