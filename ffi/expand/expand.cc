// Binding and handlers of broadcasting.
#include "ffi/expand/expand.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(Device device, ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes,
                I32 control, ffi::Result<ffi::AnyBuffer> out, ffi::ResultBuffer<ffi::S32> status) {
  ExpandBatch b{};
  if (auto e = ToBatch(in, in_offsets, in_shapes, &b.in); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &b.out); e.failure()) return e;
  if (b.in.dtype != b.out.dtype) return ffi::Error::InvalidArgument("expand: element types differ");
  if (b.in.ndim > b.out.ndim) return ffi::Error::InvalidArgument("expand: the input has more axes than the output");
#ifdef JAXDALI_CUDA
  return LaunchKernel(LaunchExpand, b, device, control, status);
#else
  (void)device;
  return ForEachSample(control, b.in, b.out, status, [&](int i) -> Status {
    ExpandArgs a;
    Status s = b.Sample(i, &a);
    if (s == kOk) Expand(a);
    return s;
  });
#endif
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_expand, jaxdali::Impl,
                              JAXDALI_BIND_BATCH().Ret<jaxdali::ffi::AnyBuffer>().Ret<jaxdali::I32>(),
                              JAXDALI_HANDLER_TRAITS);
