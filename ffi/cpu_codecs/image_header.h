// Reads the header of an encoded image: format, size, channels, depth, orientation. It reads a few bytes, calls no
// codec, and accepts any data: every access is checked against the end.
#ifndef JAXDALI_FFI_CPU_CODECS_IMAGE_HEADER_H_
#define JAXDALI_FFI_CPU_CODECS_IMAGE_HEADER_H_

#include <cstdint>

#include "ffi/common/status.h"

namespace jaxdali {

// X(name). Python has them as jaxdali._cpu.Format.
#define JAXDALI_FORMAT_TABLE(X)                                                                             \
  X(kUnknown)                                                                                               \
  X(kJpeg)                                                                                                  \
  X(kPng)                                                                                                   \
  X(kRaw) /* the stored raster, uncompressed, made by the host: u8, u16 or f32 [height, width, channels] */ \
  X(kBmp)                                                                                                   \
  X(kTiff)                                                                                                  \
  X(kWebp)                                                                                                  \
  X(kPnm)                                                                                                   \
  X(kJpeg2000)                                                                                              \
  X(kPixels)  /* the finished output, made by the host pass: decoding copies it */                          \
  X(kCompact) /* coefficients of a JPEG file, made by the host pass for GPUs, see cuda_jpeg/compact.h */    \
  X(kGif)                                                                                                   \
  X(kAvif)                                                                                                  \
  X(kHeic)                                                                                                  \
  X(kJpegXl)

enum class Format : int32_t {
#define JAXDALI_FORMAT_ENUM(name) name,
  JAXDALI_FORMAT_TABLE(JAXDALI_FORMAT_ENUM)
#undef JAXDALI_FORMAT_ENUM
};

// X(name) for the columns of the decoder's info operand. Python has them as jaxdali._cpu.Info.
//   status          Status: kOk, or the error of the header
//   format          Format
//   height, width   of the stored raster, before the orientation is applied
//   channels        with output_type ANY_DATA: 1, 2 (gray and alpha), 3 or 4; of a TIFF any number
//   depth           bits of a value, at least 8; images that the kernel decodes have 8 or 16, and a stored raster may
//                   have 32, which are floats
//   orientation     EXIF, 1 to 8
//   host_decode     1: the kernel can't decode it; Pillow or imagecodecs does in the host pass
//   orientation_at  TIFF: offset of the tag's value in the file, so that it can be hidden from readers; -1: none
//   page            the picture of a file that holds several; the header gives 0, and the host pass decodes all others
//   palette         1: values in the file are indices of a palette of colours; 2: these indices are decoded, as one
//                   channel of 8 bits, in place of the colours
//   truncated       1: as much as possible of a JPEG that ends early is decoded; the header gives 0
//   region_*        the part of the stored raster to decode; the header gives the whole raster
#define JAXDALI_INFO_TABLE(X) \
  X(status)                   \
  X(format)                   \
  X(height)                   \
  X(width)                    \
  X(channels)                 \
  X(depth)                    \
  X(orientation)              \
  X(host_decode)              \
  X(orientation_at)           \
  X(page)                     \
  X(palette)                  \
  X(truncated)                \
  X(region_y)                 \
  X(region_x)                 \
  X(region_h)                 \
  X(region_w)

// One row of the info operand, i32[kInfoColumns].
struct ImageInfo {
#define JAXDALI_INFO_FIELD(name) int32_t name;
  JAXDALI_INFO_TABLE(JAXDALI_INFO_FIELD)
#undef JAXDALI_INFO_FIELD
};
// Values of the column `palette`.
inline constexpr int32_t kHasPalette = 1, kAsIndices = 2;
inline constexpr int kInfoColumns = sizeof(ImageInfo) / sizeof(int32_t);

// Limits of what is decoded. An image with more elements than a 32-bit index can count is kTooLarge. So is a large
// image (2^24 pixels or more) whose header promises more than its bytes can hold: a Huffman-coded JPEG needs at least
// one bit for each block of 64 samples (512 pixels a byte; 2048 are accepted), and deflate expands at most 1032 times.
// Such a file is truncated or made to exhaust memory. It is refused before the output is allocated.
inline constexpr int64_t kMaxElements = 2147483647;
inline constexpr int64_t kLargePixels = int64_t{1} << 24;
inline constexpr int64_t kJpegPixelsPerByte = 2048;
inline constexpr int64_t kDeflateExpansion = 1040;

extern const bool kPng;   // whether libpng is built in: without it Pillow decodes PNG
extern const bool kWebp;  // whether libwebp is built in

// Reads the header of an image, whose format is found by its first bytes. An error is the row's status. AVIF, HEIC and
// JPEG XL are only recognized: they have the height 0 until the host pass fills in the facts from their libraries.
ImageInfo ParseHeader(const uint8_t* data, int64_t size);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CPU_CODECS_IMAGE_HEADER_H_
