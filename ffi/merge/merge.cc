// Binding of merging.
#include "ffi/merge/merge.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call; `in` and `out` are set already. The other operand only shares its memory with the output.
ffi::Error SetUp(MergeBatch* b, ffi::AnyBuffer) {
  if (b->in.dtype != b->out.dtype) return ffi::Error::InvalidArgument("merge: element types differ");
  if (b->in.ndim != b->out.ndim) return ffi::Error::InvalidArgument("merge: ranks differ");
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(merge, jaxdali::SetUp, jaxdali::Merge, jaxdali::LaunchMerge,
                      .Arg<xla::ffi::AnyBuffer>());  // the output so far, in the same memory; or empty
