// Binding and CPU handler of the strided window copy.
#include "ffi/window.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes, I32 control,
                I32 start, I32 step, I32 extent, ffi::Result<ffi::AnyBuffer> out, ffi::ResultBuffer<ffi::S32> status) {
  Batch from, to;
  if (auto e = ToBatch(in, in_offsets, in_shapes, &from); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &to); e.failure()) return e;
  if (from.dtype != to.dtype) return ffi::Error::InvalidArgument("window: element types differ");
  const size_t rows = static_cast<size_t>(to.n) * from.ndim;
  if (start.element_count() != rows || step.element_count() != rows || extent.element_count() != rows)
    return ffi::Error::InvalidArgument("window: start, step and extent must be [N, rank of the input]");
  return ForEachSample(control, from, to, status, [&](int i) -> Status {
    WindowArgs a;
    a.in = from.bytes(i);
    a.out = to.bytes(i);
    a.ndim = from.ndim;
    a.element = SizeOf(from.dtype);
    int64_t size = 1, row = int64_t{i} * from.ndim;
    for (int d = 0; d < from.ndim; d++) {
      a.dims[d] = from.dim(i, d);
      a.start[d] = start.typed_data()[row + d];
      a.step[d] = step.typed_data()[row + d];
      a.extent[d] = extent.typed_data()[row + d];
      size *= a.extent[d];
    }
    // An axis that is dropped has extent 1, a new one too: the rank of the output is free, its size is not.
    if (Status s = CheckWindow(a); s != kOk) return s;
    if (size != to.size(i)) return kInternal;
    return CopyWindow(a);
  });
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_window, jaxdali::Impl,
                              JAXDALI_BIND_BATCH()
                                  .Arg<jaxdali::I32>()  // start [N, rank of the input]
                                  .Arg<jaxdali::I32>()  // step
                                  .Arg<jaxdali::I32>()  // extent
                                  .Ret<jaxdali::ffi::AnyBuffer>()
                                  .Ret<jaxdali::I32>());
