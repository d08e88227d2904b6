// Binding of the kernel `resize`.
#include "ffi/resize/resize.h"

#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(ResizeBatch* b, F32 roi, I32 filters, int32_t first_axis, int32_t num_axes, bool antialias) {
  b->roi = roi.typed_data();
  b->filters = filters.typed_data();
  b->first_axis = first_axis;
  b->num_axes = num_axes;
  b->antialias = antialias;
  b->convention = Convention::kDali;
  if (b->in.ndim != b->out.ndim || num_axes < 1 || num_axes > 3 || first_axis < 0 || first_axis + num_axes > b->in.ndim)
    return ffi::Error::InvalidArgument("resize: axes");
  if (!ResizeTypes(b->in.dtype, b->out.dtype)) return ffi::Error::InvalidArgument("resize: element types");
  if (!HasRows(roi, *b, 2 * num_axes) || !HasRows(filters, *b, 2))
    return ffi::Error::InvalidArgument("resize: size of roi or filters");
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(resize, jaxdali::SetUp, jaxdali::Resize, jaxdali::LaunchResize,
                      .Arg<jaxdali::F32>()              // roi [N, num_axes, 2], see ResizeBatch
                          .Arg<jaxdali::I32>()          // filters [N, 2]
                          .Attr<int32_t>("first_axis")  // first of the resized axes
                          .Attr<int32_t>("num_axes")    // how many, contiguous
                          .Attr<bool>("antialias"));    // widen the filter when shrinking
