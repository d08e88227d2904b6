// Binding and CPU handler of broadcasting.
#include "ffi/expand.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes, I32 control,
                ffi::Result<ffi::AnyBuffer> out, ffi::ResultBuffer<ffi::S32> status) {
  Batch from, to;
  if (auto e = ToBatch(in, in_offsets, in_shapes, &from); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &to); e.failure()) return e;
  if (from.dtype != to.dtype) return ffi::Error::InvalidArgument("expand: element types differ");
  if (from.ndim > to.ndim) return ffi::Error::InvalidArgument("expand: the input has more axes than the output");
  return ForEachSample(control, from, to, status, [&](int i) -> Status {
    ExpandArgs a;
    a.in = from.bytes(i);
    a.out = to.bytes(i);
    a.ndim = to.ndim;
    a.element = SizeOf(to.dtype);
    const int missing = to.ndim - from.ndim;
    for (int d = 0; d < to.ndim; d++) {
      a.dims[d] = d < missing ? 1 : from.dim(i, d - missing);
      a.shape[d] = to.dim(i, d);
    }
    return Expand(a);
  });
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_expand, jaxdali::Impl,
                              JAXDALI_BIND_BATCH().Ret<jaxdali::ffi::AnyBuffer>().Ret<jaxdali::I32>());
