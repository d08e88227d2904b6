// Binding of the gather by a coordinate map.
#include "ffi/remap/remap.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(RemapBatch* b, F32 map_x, I32 map_x_offsets, F32 map_y, I32 map_y_offsets, F64 numbers, F32 fill,
                 I32 applied) {
  if (b->points < Points{} || b->points > Points::kGrid || b->sampling < Interp{} || b->sampling > Interp::kCubic ||
      b->border < Border{} || b->border >= Border::kCount)
    return ffi::Error::InvalidArgument("remap: attributes");
  const F32 maps[] = {map_x, map_y};
  const I32 offsets[] = {map_x_offsets, map_y_offsets};
  for (int s = 0; s < 2; s++) {
    b->map[s] = maps[s].typed_data();
    b->map_capacity[s] = static_cast<int64_t>(maps[s].element_count());
    b->map_offsets[s] = offsets[s].element_count() > 0 ? offsets[s].typed_data() : nullptr;
    if (b->map_offsets[s] && !HasRows(offsets[s], *b, 1)) return ffi::Error::InvalidArgument("remap: maps");
  }
  b->numbers = numbers.typed_data();
  b->fill = fill.typed_data();
  b->fills = b->out.n > 0 ? static_cast<int>(static_cast<int64_t>(fill.element_count()) / b->out.n) : 1;
  b->applied = applied.typed_data();
  if (b->in.ndim != b->out.ndim || b->first < 0 || (b->in.ndim != b->first + 2 && b->in.ndim != b->first + 3))
    return ffi::Error::InvalidArgument("remap: rank of the data");
  if (!HasRows(numbers, *b, PointNumbers(b->points)) || b->fills < 1 || !HasRows(fill, *b, b->fills) ||
      !HasRows(applied, *b, 1))
    return ffi::Error::InvalidArgument("remap: numbers, fill values and a flag per sample");
  if (b->in.dtype != b->out.dtype || !RemapType(b->in.dtype, b->sampling))
    return ffi::Error::InvalidArgument("remap: element types");
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(remap, jaxdali::SetUp, jaxdali::Remap, jaxdali::LaunchRemap,
                      .Arg<jaxdali::F32>()        // map of x, flat; empty if there is none
                          .Arg<jaxdali::I32>()    // its offsets [N], or [0] if it is dense
                          .Arg<jaxdali::F32>()    // map of y
                          .Arg<jaxdali::I32>()    // its offsets
                          .Arg<jaxdali::F64>()    // numbers [N, ...], see Points
                          .Arg<jaxdali::F32>()    // fill [N, 1 or channels]
                          .Arg<jaxdali::I32>());  // applied [N]; 0: the sample is copied unchanged
