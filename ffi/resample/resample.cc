// Binding of the kernel `resample`.
#include "ffi/resample/resample.h"

#include "ffi/chain/set_up.h"
#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUpResample(ResampleBatch* b, F32 roi, I32 filters) {
  b->roi = roi.typed_data();
  b->filters = filters.typed_data();
  if (b->in.ndim != b->out.ndim || b->num_axes < 1 || b->num_axes > 3 || b->first_axis < 0 ||
      b->first_axis + b->num_axes > b->in.ndim)
    return ffi::Error::InvalidArgument("resample: axes");
  if (!ResampleTypes(b->convention, b->in.dtype, b->out.dtype))
    return ffi::Error::InvalidArgument("resample: element types");
  if (!HasRows(roi, *b, 2 * b->num_axes) || !HasRows(filters, *b, 2))
    return ffi::Error::InvalidArgument("resample: size of roi or filters");
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(resample, jaxdali::SetUpResample, jaxdali::Resample, nullptr,
                      .Arg<jaxdali::F32>()        // roi [N, num_axes, 2], see ResizeBatch
                          .Arg<jaxdali::I32>());  // filters [N, 2]
