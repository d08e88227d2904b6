// Binding of spectrograms.
#include "ffi/spectrogram/spectrogram.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(SpectrogramBatch* b, F32 window, I32 first, F32 weights, int32_t step, int32_t nfft, int32_t before,
                 int32_t filters, int32_t time, bool reflect, bool squares) {
  if (b->in.dtype != DType::kF32 || b->out.dtype != DType::kF32 || b->out.ndim != 2)
    return ffi::Error::InvalidArgument("spectrogram: signals and spectrograms must be f32");
  const int64_t length = static_cast<int64_t>(window.element_count()), bins = nfft / 2 + 1;
  if (length < 1 || nfft < length || step < 1 || before < 0 || filters < 0 || time < 0 || time > 1)
    return ffi::Error::InvalidArgument("spectrogram: windows, and a transform that is as long");
  if (filters && (static_cast<int64_t>(first.element_count()) != bins ||
                  static_cast<int64_t>(weights.element_count()) != 2 * bins))
    return ffi::Error::InvalidArgument("spectrogram: two weights for each bin");
  for (int64_t k = 0; filters && k < bins; k++)
    if (first.typed_data()[k] < 0 || first.typed_data()[k] >= filters)
      return ffi::Error::InvalidArgument("spectrogram: a bin of no filter");
  b->window = window.typed_data();
  b->first = first.typed_data();
  b->weights = weights.typed_data();
  b->length = static_cast<int>(length);
  b->step = step;
  b->nfft = nfft;
  b->lead = before;
  b->filters = filters;
  b->time = time;
  b->reflect = reflect;
  b->squares = squares;
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(spectrogram, jaxdali::SetUp, jaxdali::Spectrogram, nullptr,
                      .Arg<jaxdali::F32>()      // the window
                          .Arg<jaxdali::I32>()  // the first filter of each bin, or none
                          .Arg<jaxdali::F32>()  // its weights in this filter and the next
                          .Attr<int32_t>("step")
                          .Attr<int32_t>("nfft")
                          .Attr<int32_t>("before")
                          .Attr<int32_t>("filters")
                          .Attr<int32_t>("time")
                          .Attr<bool>("reflect")
                          .Attr<bool>("squares"));
