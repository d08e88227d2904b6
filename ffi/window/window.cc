// Binding of the strided window.
#include "ffi/window/window.h"

#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(WindowBatch* b, I32 start, I32 step, I32 extent, F32 fill, F32 scale, F32 offset,
                 ffi::Span<const int64_t> permutation, int32_t channel) {
  const int ndim = b->in.ndim;
  if (!HasRows(start, *b, ndim) || !HasRows(step, *b, ndim) || !HasRows(extent, *b, ndim))
    return ffi::Error::InvalidArgument("window: start, step and extent must be [N, rank of the input]");
  b->start = start.typed_data();
  b->step = step.typed_data();
  b->extent = extent.typed_data();
  b->fill = fill.typed_data();
  b->scale = scale.typed_data();
  b->offset = offset.typed_data();
  b->fills = b->out.n > 0 ? static_cast<int>(fill.element_count()) / b->out.n : 0;
  b->scales = b->out.n > 0 ? static_cast<int>(scale.element_count()) / b->out.n : 0;
  if (!HasRows(fill, *b, b->fills) || !HasRows(scale, *b, b->scales) || !HasRows(offset, *b, b->scales))
    return ffi::Error::InvalidArgument("window: fill, scale and offset must be [N, channels], or [N, 0]");
  unsigned named_axes = 0;
  if (static_cast<int>(permutation.size()) != ndim)
    return ffi::Error::InvalidArgument("window: the permutation must name each axis of the input once");
  for (int k = 0; k < ndim; k++) {
    const int64_t d = permutation[k];
    if (d < 0 || d >= ndim || (named_axes >> d & 1))
      return ffi::Error::InvalidArgument("window: the permutation must name each axis of the input once");
    named_axes |= 1u << d;
    b->permutation[k] = static_cast<int>(d);
  }
  b->channel = channel;
  constexpr int64_t kMuch = 4 << 20;  // bytes; from here on the output leaves the caches before it is read (measured)
  b->past_caches = b->out.capacity * SizeOf(b->out.dtype) >= kMuch;  // values inside a chain stay in the caches
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(window, jaxdali::SetUp, jaxdali::Window, jaxdali::LaunchWindow,
                      .Arg<jaxdali::I32>()      // start [N, rank of the input]
                          .Arg<jaxdali::I32>()  // step
                          .Arg<jaxdali::I32>()  // extent
                          .Arg<jaxdali::F32>()  // fill [N, channels], or [N, 0]: no index may be outside
                          .Arg<jaxdali::F32>()  // scale [N, channels], or [N, 0]
                          .Arg<jaxdali::F32>()  // offset
                          .Attr<jaxdali::ffi::Span<const int64_t>>("permutation")  // output axis to input axis
                          .Attr<int32_t>("channel"));                              // one of the input's axes, or -1
