// Decoding of images. The CPU decodes one at a time: JPEG like libjpeg-turbo, PNG like libpng, WebP by
// libwebp, and raw pixels by a copy, with colour space, orientation and element type in the same pass over the rows.
// CUDA decodes a batch: the JPEG files that ffi/cuda_jpeg/table.h supports, and finished pixels. No XLA headers, so
// that fuzzers can link it alone.
#ifndef JAXDALI_FFI_DECODE_DECODE_H_
#define JAXDALI_FFI_DECODE_DECODE_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/jpeg/helpers.h"

namespace jaxdali {

namespace jpeg {
struct ImageTable;      // ffi/cuda_jpeg/table.h
class BaselineDecoder;  // ffi/jpeg/baseline.h
struct Strip;           // ffi/jpeg/strips.h
}  // namespace jpeg
namespace png {
class Decoder;  // ffi/png/decoder.h
}

// Colour spaces of decoded images.
enum class ImageType : int32_t { kRgb, kBgr, kGray, kYcbcr, kAny };

struct DecodeOptions {
  ImageType type;
  bool adjust_orientation;  // apply info.orientation
  bool fast_idct;           // JPEG: the fast integer IDCT instead of the accurate one; CPU only
  jpeg::Helpers helpers{};  // threads that share a large image; CPU only
  static const char* AttributeNames() { return "output_type, adjust_orientation, fast_idct"; }
  auto Attributes() { return std::tie(type, adjust_orientation, fast_idct); }
};

extern const bool kJpegArithmetic;  // whether this libjpeg-turbo decodes arithmetic-coded files

// Whether width and height of the result are swapped.
JAXDALI_HD inline bool Transposes(const ImageInfo& info, bool adjust_orientation) {
  return adjust_orientation && info.orientation >= 5;
}

JAXDALI_HD inline int OutputChannels(const ImageInfo& info, ImageType type) {
  return type == ImageType::kAny ? info.channels : type == ImageType::kGray ? 1 : 3;
}

// Whether pixels have the channels of the output in the file already, in their order.
inline bool IsOrdered(const ImageInfo& info, const DecodeOptions& options) {
  return options.type == ImageType::kAny || (options.type == ImageType::kRgb && info.channels == 3) ||
         (options.type == ImageType::kGray && info.channels == 1);
}

// Whether a row of the info operand is valid: its region is not empty and lies in the image. Only pixels of the host
// pass have more than four channels, or floats.
JAXDALI_HD inline bool IsDecodable(const ImageInfo& i) {
  const bool is_coded =
      i.format != static_cast<int32_t>(Format::kRaw) && i.format != static_cast<int32_t>(Format::kPixels);
  return i.channels >= 1 && (i.depth == 8 || i.depth == 16 || i.depth == 32) &&
         (!is_coded || (i.channels <= 4 && i.depth <= 16)) && i.region_y >= 0 && i.region_h > 0 &&
         i.region_h <= i.height - i.region_y && i.region_x >= 0 && i.region_w > 0 && i.region_w <= i.width - i.region_x;
}

// The type of the values in a raster of this depth.
inline DType StoredType(int depth) { return depth == 32 ? DType::kF32 : depth == 16 ? DType::kU16 : DType::kU8; }

// Whether the data are the output.
JAXDALI_HD inline bool IsFinished(const ImageInfo& info) {
  return info.format == static_cast<int32_t>(Format::kPixels);
}

// Whether the output has the shape that the info row promises.
JAXDALI_HD inline bool OutputFits(const ImageInfo& info, ImageType type, bool adjust_orientation, int64_t height,
                                  int64_t width, int64_t channels) {
  const bool transposed = Transposes(info, adjust_orientation);
  return height == (transposed ? info.region_w : info.region_h) &&
         width == (transposed ? info.region_h : info.region_w) && channels == OutputChannels(info, type);
}

// Decodes the region of an image of `size` bytes into out[height, width, channels] of `dtype`, with values scaled to
// the type's full range (floats: 0 to 1). The pixels are those of the whole image, cropped. The caller's height, width
// and channels must agree with `info` and `options`; otherwise the status is kSizeMismatch.
//   kTruncated: the data end before the region does, or before the end of a whole image; with info.truncated those of
//   a JPEG end before its first scan begins. Other damage inside a JPEG gives the pixels that libjpeg gives; kCorrupt
//   means that there are none.
//   After a failure the contents of `out` are undefined.
Status DecodeImage(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, DType dtype,
                   void* out, int64_t height, int64_t width, int64_t channels);

// The decoder of this thread, started with the region of an image. It gives the rows from the top as DecodeImage writes
// them into uint8. If it returns null, or NextRow returns false, use DecodeImage, from the first row on. `strip`: the
// strip of the image in which the region begins, or null.
jpeg::BaselineDecoder* StartRows(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                                 const jpeg::Strip* strip = nullptr);
// StartRows for PNG: null, or the started decoder, from which NextPngRow takes the rows one after another. All rows
// exist once it has started.
png::Decoder* StartPngRows(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options);
void NextPngRow(png::Decoder* decoder, const ImageInfo& info, const DecodeOptions& options, uint8_t* pixels);

// The batch on CUDA. All pointers are on the device.
struct DecodeBatch {
  Batch in, out;
  const ImageInfo* info;           // [n]
  const jpeg::ImageTable* tables;  // [n]
  uint8_t* workspace;
  int64_t workspace_size;  // bytes
  ImageType type;
  bool adjust_orientation;
  int32_t group_bytes;  // positive; see jpeg::kGroupBytes
};

// Returns null or an error message.
const char* LaunchDecode(const DecodeBatch& b, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_DECODE_DECODE_H_
