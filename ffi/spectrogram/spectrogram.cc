// Binding of spectrograms.
#include "ffi/spectrogram/spectrogram.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(SpectrogramBatch* b, F32 window, I32 first, F32 weights) {
  if (b->in.dtype != DType::kF32 || b->out.dtype != DType::kF32 || b->out.ndim != 2)
    return ffi::Error::InvalidArgument("spectrogram: signals and spectrograms must be f32");
  const int64_t length = static_cast<int64_t>(window.element_count()), bins = b->Bins();
  if (length < 1 || b->nfft < length || b->step < 1 || b->before < 0 || b->filters < 0 || b->time < 0 || b->time > 1)
    return ffi::Error::InvalidArgument("spectrogram: windows, and a transform that is as long");
  if (b->filters && (static_cast<int64_t>(first.element_count()) != bins ||
                     static_cast<int64_t>(weights.element_count()) != 2 * bins))
    return ffi::Error::InvalidArgument("spectrogram: two weights for each bin");
  for (int64_t k = 0; b->filters && k < bins; k++)
    if (first.typed_data()[k] < 0 || first.typed_data()[k] >= b->filters)
      return ffi::Error::InvalidArgument("spectrogram: a bin of no filter");
  b->window = window.typed_data();
  b->first = first.typed_data();
  b->weights = weights.typed_data();
  b->length = static_cast<int>(length);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(spectrogram, jaxdali::SetUp, jaxdali::Spectrogram, nullptr,
                      .Arg<jaxdali::F32>()        // the window
                          .Arg<jaxdali::I32>()    // the first filter of each bin, or none
                          .Arg<jaxdali::F32>());  // its weights in this filter and the next
