// Binding of reductions.
#include "ffi/reduce/reduce.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(ReduceBatch* b, F64 center, int32_t reduction, ffi::Span<const int64_t> axes) {
  if (reduction < 0 || reduction > static_cast<int32_t>(Reduction::kMax))
    return ffi::Error::InvalidArgument("reduce: unknown reduction");
  const auto centers = static_cast<int64_t>(center.element_count());
  if (centers != 0 && centers != b->out.capacity)
    return ffi::Error::InvalidArgument("reduce: the centers must be as many as the results");
  b->center = centers == 0 ? nullptr : center.typed_data();
  b->reduction = static_cast<Reduction>(reduction);
  for (int64_t d : axes) {
    if (d < 0 || d >= b->in.ndim) return ffi::Error::InvalidArgument("reduce: axes");
    b->axes |= 1u << d;
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(reduce, jaxdali::SetUp, jaxdali::Reduce, jaxdali::LaunchReduce,
                      .Arg<jaxdali::F64>()             // centre, in the shape of the output; or [0]
                          .Attr<int32_t>("reduction")  // Reduction
                          .Attr<jaxdali::ffi::Span<const int64_t>>("axes"));
