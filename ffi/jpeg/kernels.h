// What of the decoder is compiled for each kind of CPU: it is chosen at run time.
#ifndef JAXDALI_FFI_JPEG_KERNELS_H_
#define JAXDALI_FFI_JPEG_KERNELS_H_

#include <cstdint>

#include "ffi/jpeg/band.h"

namespace jaxdali::jpeg {

// Rows of samples and pixels that kernels read and write have so many bytes more before and behind them.
inline constexpr int kRowMargin = 64;

struct Kernels {
  bool (*decode_band)(BandScan* scan, bool wanted);
  // Of progressive files: a scan of the whole image, then band by band.
  bool (*decode_scan)(StoredScan* scan);
  bool (*transform_band)(const BandScan& scan, const StoredGroupPair* stored);

  // Fancy upsampling (upsampling.h) of samples [begin, end) of a row to pixels [2 * begin, 2 * end), or of as many
  // samples to as many pixels. Samples beside them are read; `far` is the row that counts a quarter.
  void (*upsample_h2v1)(const uint8_t* row, int begin, int end, uint8_t* pixels);
  void (*upsample_h1v2)(const uint8_t* near, const uint8_t* far, bool is_lower, int begin, int end, uint8_t* pixels);
  void (*upsample_h2v2)(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels);

  // n pixels of three planes to 3 * n bytes, no more.
  void (*convert_ycc)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out);
};

extern const Kernels kPortableKernels;
#if defined(JAXDALI_VECTORS)
extern const Kernels kSimdKernels;
#endif

#if defined(__x86_64__)
// The same, but for those that this CPU's AVX-512 does sooner.
Kernels WithAvx512(Kernels kernels);
#endif

// The best that this CPU can do.
const Kernels& BestKernels();

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_KERNELS_H_
