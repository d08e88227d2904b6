// Binding of window reductions.
#include "ffi/stencil/stencil.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(StencilBatch* b, F32 weights, I32 window, I32 anchor, F32 fill, int32_t first, int32_t axes,
                 int32_t reduction, int32_t border) {
  if (first < 0 || axes < 1 || axes > 3 || first + axes > b->in.ndim || b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("stencil: axes");
  if (reduction < 0 || reduction >= static_cast<int32_t>(StencilReduction::kCount) || border < 0 ||
      border >= static_cast<int32_t>(Border::kCount) || !FitsFloat(b->in.dtype) || !FitsFloat(b->out.dtype))
    return ffi::Error::InvalidArgument("stencil: reduction, border or element types");
  const auto dims = weights.dimensions();
  if (dims.size() != 2 || dims[0] != b->out.n || !HasRows(window, *b, axes) || !HasRows(anchor, *b, axes) ||
      !HasRows(fill, *b, 1))
    return ffi::Error::InvalidArgument("stencil: weights [N, most], windows and anchors [N, axes], fill [N]");
  b->weights = weights.typed_data();
  b->most = dims[1];
  b->window = window.typed_data();
  b->anchor = anchor.typed_data();
  b->fill = fill.typed_data();
  b->first = first;
  b->axes = axes;
  b->reduction = static_cast<StencilReduction>(reduction);
  b->border = static_cast<Border>(border);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(stencil, jaxdali::SetUp, jaxdali::RunStencil, jaxdali::LaunchStencil,
                      .Arg<jaxdali::F32>()         // weights [N, most], row by row of a window
                          .Arg<jaxdali::I32>()     // extents of the windows [N, axes]
                          .Arg<jaxdali::I32>()     // anchors [N, axes]
                          .Arg<jaxdali::F32>()     // fill [N]
                          .Attr<int32_t>("first")  // axis
                          .Attr<int32_t>("axes")
                          .Attr<int32_t>("reduction")
                          .Attr<int32_t>("border"));
