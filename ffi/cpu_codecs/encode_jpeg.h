// Encodes baseline JPEG files with libjpeg-turbo.
#ifndef JAXDALI_FFI_CPU_CODECS_ENCODE_JPEG_H_
#define JAXDALI_FFI_CPU_CODECS_ENCODE_JPEG_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int64_t kMaxJpegExtent = 65500;  // libjpeg's JPEG_MAX_DIMENSION

struct EncodeOptions {
  int quality;             // 1 to 100
  int factor_h, factor_v;  // sampling factors of luminance, chroma has 1: 2 and 2 are 4:2:0
  bool bgr;                // the first of three channels is blue
};

// A buffer that libjpeg's C code grows.
struct EncodedFile {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data;
  size_t size = 0;
};

// Encodes pixels [height, width, channels], with 1 or 3 channels, for which the caller has checked all limits.
Status EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, const EncodeOptions& options,
                  EncodedFile* out);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CPU_CODECS_ENCODE_JPEG_H_
