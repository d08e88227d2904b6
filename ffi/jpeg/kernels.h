// The functions of the decoder and of `jpeg_distortion` that are compiled for each kind of CPU and chosen at run time:
// kernels_portable.cc for any CPU, kernels_simd.cc for AVX2 and NEON, kernels_avx512.cc for colours and one upsampling
// with AVX-512.
#ifndef JAXDALI_FFI_JPEG_KERNELS_H_
#define JAXDALI_FFI_JPEG_KERNELS_H_

#include <cstdint>

#include "ffi/jpeg/band.h"
#include "ffi/jpeg/forward_dct.h"

namespace jaxdali::jpeg {

// Rows of samples and pixels have this many extra bytes before and after them, which kernels may read and write.
inline constexpr int kRowMargin = 64;

struct Kernels {
  bool (*decode_band)(BandScan* scan, bool is_needed);
  // For progressive files: a scan of the whole image, then band by band.
  bool (*decode_scan)(StoredScan* scan);
  bool (*transform_band)(const BandScan& scan, const StoredGroupPair* stored);

  // Fancy upsampling (upsampling.h) of samples [begin, end) of a row to pixels [2 * begin, 2 * end), or to as many
  // pixels as samples. Neighbouring samples are read too. Weights are 3/4 for the nearer sample and 1/4 for the farther
  // one, in each direction. `far` is the row with the weight 1/4; `is_lower`: it is the row below.
  void (*upsample_h2v1)(const uint8_t* row, int begin, int end, uint8_t* pixels);
  void (*upsample_h1v2)(const uint8_t* near, const uint8_t* far, bool is_lower, int begin, int end, uint8_t* pixels);
  void (*upsample_h2v2)(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels);

  // Converts n pixels of three planes to exactly 3 * n bytes.
  void (*convert_ycc)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out);

  // Compresses and decompresses `pairs` times two blocks of 8 x 8 samples, all side by side, in place: forward DCT,
  // quantization, inverse DCT.
  void (*requantize)(const Quantizers& quantizers, int64_t pairs, uint8_t* samples, int64_t pitch);
};

extern const Kernels kPortableKernels;
#if defined(JAXDALI_VECTORS)
extern const Kernels kSimdKernels;
#endif

#if defined(__x86_64__)
// Replaces those kernels that are faster with this CPU's AVX-512.
Kernels WithAvx512(Kernels kernels);
#endif

// The fastest kernels for this CPU.
const Kernels& BestKernels();

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_KERNELS_H_
