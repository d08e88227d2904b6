// Decoding one image: JPEG by libjpeg-turbo, PNG by libpng, raw pixels by a copy; colour space, orientation and element
// type in the same pass over the rows. No XLA headers: fuzzers link this alone.
#ifndef JAXDALI_FFI_DECODE_H_
#define JAXDALI_FFI_DECODE_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/status.h"
#include "ffi/image_header.h"

namespace jaxdali {

// jaxdali.types.DALIImageType
enum class ImageType : int32_t { kRgb, kBgr, kGray, kYcbcr, kAny };

struct DecodeOptions {
  ImageType type;
  bool adjust_orientation;  // apply info.orientation
  bool fast_idct;           // JPEG: the fast integer IDCT instead of the accurate one
};

extern const bool kJpegArithmetic;  // this libjpeg-turbo decodes arithmetic-coded files

// Width and height of the result are swapped.
inline bool Transposes(const ImageInfo& info, const DecodeOptions& options) {
  return options.adjust_orientation && info.orientation >= 5;
}

inline int OutputChannels(const ImageInfo& info, ImageType type) {
  return type == ImageType::kAny ? info.channels : type == ImageType::kGray ? 1 : 3;
}

// Decodes `size` bytes into out[height, width, channels] of `dtype`, values scaled to the type's full range (floats: 0
// to 1). The caller's height, width and channels must be what `info` and `options` say, else kSizeMismatch.
//   kTruncated: the data end before the image does. Other damage inside the data of a JPEG gives what can be had, as
//   libjpeg does it; kCorrupt is what no pixels come from. What `out` holds after a failure is undefined.
Status DecodeImage(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, DType dtype,
                   void* out, int64_t height, int64_t width, int64_t channels);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_DECODE_H_
