// What an encoded image's header says: format, size, channels, depth, orientation. Reads a few bytes, calls no codec,
// and takes anything: every access is checked against the data's end.
#ifndef JAXDALI_FFI_IMAGE_HEADER_H_
#define JAXDALI_FFI_IMAGE_HEADER_H_

#include <cstdint>

#include "ffi/common/status.h"

namespace jaxdali {

// jaxdali/fn/_decode/pillow.py has the same.
enum class Format : int32_t {
  kUnknown,
  kJpeg,
  kPng,
  kRaw,  // the stored raster, uncompressed, made by the host pass: u8 or u16 [height, width, channels]
  kBmp,
  kTiff,
  kWebp,
  kPnm,
  kJpeg2000,
  kPixels,  // the finished output, made by the host pass: decoding copies it
};

// One row of the info operand of the decoder, i32[kInfoColumns]; jaxdali/fn/_decode.py names the columns.
struct ImageInfo {
  int32_t status;          // Status: kOk, or why the header is no good
  int32_t format;          // Format
  int32_t height, width;   // of the stored raster, before the orientation is applied
  int32_t channels;        // that output_type ANY_DATA gives: 1, 2 (gray and alpha), 3 or 4
  int32_t depth;           // bits of a value, at least 8; of what the kernel decodes 8 or 16
  int32_t orientation;     // EXIF, 1 to 8
  int32_t host_decode;     // 1: not for libjpeg or libpng; Pillow or imagecodecs decodes it in the host pass
  int32_t orientation_at;  // TIFF: where the tag's value is in the file (-1: nowhere), for readers not to see it
  int32_t region_y, region_x, region_h, region_w;  // the part of the stored raster to decode; of a header: all
};
inline constexpr int kInfoColumns = 13;
static_assert(sizeof(ImageInfo) == kInfoColumns * sizeof(int32_t));

// Limits of what is decoded at all. An image of more elements than a 32-bit index reaches is kTooLarge, and so is a
// large one (2^24 pixels and more) whose header promises more than its bytes can hold: a Huffman-coded JPEG needs at
// least one bit for each block of 64 samples (512 pixels a byte; 2048 are let through), deflate expands at most 1032
// times. Such a file is truncated or made to exhaust memory, and is refused before the output is allocated.
inline constexpr int64_t kMaxElements = 2147483647;
inline constexpr int64_t kLargePixels = int64_t{1} << 24;
inline constexpr int64_t kJpegPixelsPerByte = 2048;
inline constexpr int64_t kDeflateExpansion = 1040;

ImageInfo ParseHeader(const uint8_t* data, int64_t size);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_IMAGE_HEADER_H_
