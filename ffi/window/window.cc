// Binding and handlers of the strided window copy.
#include "ffi/window/window.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(Device device, ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes,
                I32 control, I32 start, I32 step, I32 extent, ffi::Result<ffi::AnyBuffer> out,
                ffi::ResultBuffer<ffi::S32> status) {
  WindowBatch b{
      .in = {}, .out = {}, .start = start.typed_data(), .step = step.typed_data(), .extent = extent.typed_data()};
  if (auto e = ToBatch(in, in_offsets, in_shapes, &b.in); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &b.out); e.failure()) return e;
  if (b.in.dtype != b.out.dtype) return ffi::Error::InvalidArgument("window: element types differ");
  const size_t rows = static_cast<size_t>(b.out.n) * b.in.ndim;
  if (start.element_count() != rows || step.element_count() != rows || extent.element_count() != rows)
    return ffi::Error::InvalidArgument("window: start, step and extent must be [N, rank of the input]");
#ifdef JAXDALI_CUDA
  return LaunchKernel(LaunchWindow, b, device, control, status);
#else
  (void)device;
  return ForEachSample(control, b.in, b.out, status, [&](int i) -> Status {
    WindowArgs a;
    Status s = b.Sample(i, &a);
    if (s == kOk) CopyWindow(a);
    return s;
  });
#endif
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_window, jaxdali::Impl,
                              JAXDALI_BIND_BATCH()
                                  .Arg<jaxdali::I32>()  // start [N, rank of the input]
                                  .Arg<jaxdali::I32>()  // step
                                  .Arg<jaxdali::I32>()  // extent
                                  .Ret<jaxdali::ffi::AnyBuffer>()
                                  .Ret<jaxdali::I32>(),
                              JAXDALI_HANDLER_TRAITS);
