// Binding of window reductions.
#include "ffi/stencil/stencil.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(StencilBatch* b, F32 weights, I32 window, I32 anchor, F32 fill) {
  if (b->first < 0 || b->axes < 1 || b->axes > 3 || b->first + b->axes > b->in.ndim || b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("stencil: axes");
  if (b->reduction < StencilReduction{} || b->reduction >= StencilReduction::kCount || b->border < Border{} ||
      b->border >= Border::kCount || !FitsFloat(b->in.dtype) || !FitsFloat(b->out.dtype))
    return ffi::Error::InvalidArgument("stencil: reduction, border or element types");
  const auto dims = weights.dimensions();
  if (dims.size() != 2 || dims[0] != b->out.n || !HasRows(window, *b, b->axes) || !HasRows(anchor, *b, b->axes) ||
      !HasRows(fill, *b, 1))
    return ffi::Error::InvalidArgument("stencil: weights [N, most], windows and anchors [N, axes], fill [N]");
  b->weights = weights.typed_data();
  b->most = dims[1];
  b->window = window.typed_data();
  b->anchor = anchor.typed_data();
  b->fill = fill.typed_data();
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(stencil, jaxdali::SetUp, jaxdali::RunStencil, jaxdali::LaunchStencil,
                      .Arg<jaxdali::F32>()        // weights [N, most], row by row of a window
                          .Arg<jaxdali::I32>()    // extents of the windows [N, axes]
                          .Arg<jaxdali::I32>()    // anchors [N, axes]
                          .Arg<jaxdali::F32>());  // fill [N]
