// Baseline JPEG files by libjpeg-turbo.
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
  int factor_h, factor_v;  // of luma, relative to chroma: 2 and 2 are 4:2:0
  bool bgr;                // of three channels blue is the first
};

// Bytes that libjpeg's C code makes larger.
struct EncodedFile {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data;
  size_t size = 0;
};

// `pixels` are [height, width, channels], 1 or 3 of these, which the caller has checked.
Status EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, const EncodeOptions& options,
                  EncodedFile* out);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CPU_CODECS_ENCODE_JPEG_H_
