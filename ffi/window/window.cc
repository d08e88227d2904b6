// Binding of the strided window.
#include "ffi/window/window.h"

#include <algorithm>

#include "ffi/chain/set_up.h"
#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUpWindow(WindowBatch* b, I32 start, I32 step, I32 extent, F32 fill, F32 scale, F32 offset) {
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
  constexpr int kAxes[] = {0, 1, 2, 3, 4, 5, 6, 7};
  if (!std::is_permutation(kAxes, kAxes + ndim, b->permutation) ||
      std::count(b->permutation, b->permutation + 8, kNoAxis) != 8 - ndim)
    return ffi::Error::InvalidArgument("window: the permutation must name each axis of the input once");
  constexpr int64_t kMuch = 4 << 20;  // bytes; from here on the output leaves the caches before it is read (measured)
  b->past_caches = b->out.capacity * SizeOf(b->out.dtype) >= kMuch;  // values inside a chain stay in the caches
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(window, jaxdali::SetUpWindow, jaxdali::Window, jaxdali::LaunchWindow,
                      .Arg<jaxdali::I32>()        // start [N, rank of the input]
                          .Arg<jaxdali::I32>()    // step
                          .Arg<jaxdali::I32>()    // extent
                          .Arg<jaxdali::F32>()    // fill [N, channels], or [N, 0]: no index may be outside
                          .Arg<jaxdali::F32>()    // scale [N, channels], or [N, 0]
                          .Arg<jaxdali::F32>());  // offset
