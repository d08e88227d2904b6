// CPU kernel of spectrograms, with the vectors that all CPUs have; and the choice of wider ones.
#define JAXDALI_LANE_BYTES 16
#include "ffi/common/simd.h"
#include "ffi/spectrogram/spectrogram_lanes.h"

namespace jaxdali {

// The CPU kernel: makes sample i of the output.
Status Spectrogram(const SpectrogramBatch& batch, int i) {
#if defined(__x86_64__)
  if (kHasAvx512) return Spectrogram64(batch, i);
  if (kHasSimd) return Spectrogram32(batch, i);
#endif
  return Spectrogram16(batch, i);
}

}  // namespace jaxdali
