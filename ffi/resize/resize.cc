// Binding of the kernel `resize`.
#include "ffi/resize/resize.h"

#include "ffi/chain/set_up.h"
#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUpResize(ResizeBatch* b, F32 roi, I32 filters) {
  b->roi = roi.typed_data();
  b->filters = filters.typed_data();
  b->convention = Convention::kDali;
  if (b->in.ndim != b->out.ndim || b->num_axes < 1 || b->num_axes > 3 || b->first_axis < 0 ||
      b->first_axis + b->num_axes > b->in.ndim)
    return ffi::Error::InvalidArgument("resize: axes");
  if (!ResizeTypes(b->in.dtype, b->out.dtype)) return ffi::Error::InvalidArgument("resize: element types");
  if (!HasRows(roi, *b, 2 * b->num_axes) || !HasRows(filters, *b, 2))
    return ffi::Error::InvalidArgument("resize: size of roi or filters");
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(resize, jaxdali::SetUpResize, jaxdali::Resize, jaxdali::LaunchResize,
                      .Arg<jaxdali::F32>()        // roi [N, num_axes, 2], see ResizeBatch
                          .Arg<jaxdali::I32>());  // filters [N, 2]
