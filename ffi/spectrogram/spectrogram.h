// Spectrograms of signals, float32: windows of a signal, their Fourier transforms (pocketfft), amplitudes or powers,
// and the product with a bank of mel filters. Several windows at once, one in each lane of a vector.
// spectrogram_lanes.h has the kernel; three files compile it for vectors of 16, 32 and 64 bytes, and spectrogram_cpu.cc
// chooses.
#ifndef JAXDALI_FFI_SPECTROGRAM_SPECTROGRAM_H_
#define JAXDALI_FFI_SPECTROGRAM_SPECTROGRAM_H_

#include "ffi/common/batch.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The operands of the custom call.
struct SpectrogramBatch {
  Batch in, out;         // signals of any shape; [frequencies, times] or [times, frequencies]
  const float* window;   // [length]
  const int32_t* first;  // [bins] of each bin, the first of the two neighbouring filters that it belongs to
  const float* weights;  // [bins, 2] in these filters
  int length, step;      // samples of a window, and from one window to the next
  int nfft;              // length of the transform; windows are followed by zeros up to it
  int before;            // samples of a window before the time that it stands for
  int filters;           // 0: the result has all bins
  int time;              // the axis of times
  bool reflect;          // beyond its ends a signal is mirrored; otherwise 0
  bool squares;          // powers, not amplitudes
  JAXDALI_ATTRIBUTES(step, nfft, before, filters, time, reflect, squares);

  int Bins() const { return nfft / 2 + 1; }
  int Rows() const { return filters ? filters : Bins(); }
};

// The CPU kernel.
Status Spectrogram(const SpectrogramBatch& batch, int i);

// The CPU kernel with vectors of so many bytes. The wider ones need AVX2 and AVX-512.
Status Spectrogram16(const SpectrogramBatch& batch, int i);
Status Spectrogram32(const SpectrogramBatch& batch, int i);
Status Spectrogram64(const SpectrogramBatch& batch, int i);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_SPECTROGRAM_SPECTROGRAM_H_
