// Uninitialised memory for results of programs (jaxdali/_program/output_reuse.py).
#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Empty(ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_empty, Empty, ffi::Ffi::Bind().Ret<ffi::AnyBuffer>());

}  // namespace jaxdali
