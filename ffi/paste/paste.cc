// Binding of the canvases.
#include "ffi/paste/paste.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(PasteBatch* b, I32 regions) {
  constexpr int kNumbers = sizeof(PasteRegion) / sizeof(int32_t);
  b->regions = reinterpret_cast<const PasteRegion*>(regions.typed_data());
  b->most = b->out.n > 0 ? static_cast<int>(static_cast<int64_t>(regions.element_count()) / b->out.n / kNumbers) : 0;
  if (b->in.ndim != b->out.ndim || b->first < 0 || b->in.ndim != b->first + 3)
    return ffi::Error::InvalidArgument("paste: rank of the data");
  if (!HasRows(regions, *b, b->most * kNumbers)) return ffi::Error::InvalidArgument("paste: regions");
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(paste, jaxdali::SetUp, jaxdali::Paste, jaxdali::LaunchPaste,
                      .Arg<jaxdali::I32>());  // regions [N, most, 7], see PasteRegion
