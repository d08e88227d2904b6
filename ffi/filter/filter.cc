// Binding of separable filters.
#include "ffi/filter/filter.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(FilterBatch* b, F32 window, I32 taps) {
  if (b->first < 0 || b->axes < 1 || b->axes > 3 || b->first + b->axes > b->in.ndim || b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("filter: axes");
  const auto dims = window.dimensions();
  if (dims.size() != 3 || dims[0] != b->out.n || dims[1] != b->axes || !HasRows(taps, *b, b->axes))
    return ffi::Error::InvalidArgument("filter: windows must be [N, axes, taps], their lengths [N, axes]");
  b->window = window.typed_data();
  b->taps = taps.typed_data();
  b->most = static_cast<int>(dims[2]);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(filter, jaxdali::SetUp, jaxdali::Filter, jaxdali::LaunchFilter,
                      .Arg<jaxdali::F32>()        // windows [N, axes, taps]
                          .Arg<jaxdali::I32>());  // number of taps [N, axes]
