// Binding of broadcasting.
#include "ffi/expand/expand.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call; `in` and `out` are set already.
ffi::Error SetUp(ExpandBatch* b) {
  if (b->in.dtype != b->out.dtype) return ffi::Error::InvalidArgument("expand: element types differ");
  if (b->in.ndim > b->out.ndim) return ffi::Error::InvalidArgument("expand: the input has more axes than the output");
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(expand, jaxdali::SetUp, jaxdali::Expand, jaxdali::LaunchExpand);
