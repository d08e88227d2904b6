// Binding of the affine warp.
#include "ffi/warp/warp.h"

#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(WarpBatch* b, F64 map, F32 fill, int32_t dims, int32_t first, bool linear, bool has_fill) {
  b->map = map.typed_data();
  b->fill = fill.typed_data();
  b->dims = dims;
  b->first = first;
  b->linear = linear;
  b->has_fill = has_fill;
  if ((dims != 2 && dims != 3) || first < 0 || b->in.ndim != first + dims + 1 || b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("warp: rank of the data");
  if (!HasRows(map, *b, dims * (dims + 1)) || !HasRows(fill, *b, 1))
    return ffi::Error::InvalidArgument("warp: one map and one fill value per sample");
  if (!WarpTypes(b->in.dtype, b->out.dtype)) return ffi::Error::InvalidArgument("warp: element types");
  return ffi::Error::Success();
}

}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(warp, jaxdali::SetUp, jaxdali::Warp, jaxdali::LaunchWarp,
                      .Arg<jaxdali::F64>()         // map [N, dims, dims + 1], see SetMap
                          .Arg<jaxdali::F32>()     // fill [N]
                          .Attr<int32_t>("dims")   // spatial axes: 2 or 3
                          .Attr<int32_t>("first")  // number of axes before them: frames
                          .Attr<bool>("linear")
                          .Attr<bool>("has_fill"));
