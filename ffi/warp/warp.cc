// Binding of the affine warp.
#include "ffi/warp/warp.h"

#include "ffi/chain/set_up.h"
#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks a call, and sets the operands of its batch. All else is set already.
ffi::Error SetUpWarp(WarpBatch* b, F64 map, F32 fill) {
  b->map = map.typed_data();
  b->fill = fill.typed_data();
  if ((b->dims != 2 && b->dims != 3) || b->first < 0 || b->in.ndim != b->first + b->dims + 1 ||
      b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("warp: rank of the data");
  if (!HasRows(map, *b, b->dims * (b->dims + 1)) || !HasRows(fill, *b, 1))
    return ffi::Error::InvalidArgument("warp: one map and one fill value per sample");
  if (!WarpTypes(b->in.dtype, b->out.dtype)) return ffi::Error::InvalidArgument("warp: element types");
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(warp, jaxdali::SetUpWarp, jaxdali::Warp, jaxdali::LaunchWarp,
                      .Arg<jaxdali::F64>()        // map [N, dims, dims + 1], see SetMap
                          .Arg<jaxdali::F32>());  // fill [N]
