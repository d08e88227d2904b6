// Binding and handlers of the kernel `resize`.
#include "ffi/resize/resize.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Resize(Device device, ffi::AnyBuffer data, I32 offsets, I32 shapes, I32 out_offsets, I32 out_shapes,
                  I32 control, F32 roi, I32 filters, int32_t first_axis, int32_t num_axes, bool antialias,
                  ffi::Result<ffi::AnyBuffer> out_data, ffi::ResultBuffer<ffi::S32> status) {
  ResizeBatch b{.in = {},
                .out = {},
                .roi = roi.typed_data(),
                .filters = filters.typed_data(),
                .first_axis = first_axis,
                .num_axes = num_axes,
                .antialias = antialias};
  if (auto e = ToBatch(data, offsets, shapes, &b.in); !e.success()) return e;
  if (auto e = ToBatch(*out_data, out_offsets, out_shapes, &b.out); !e.success()) return e;
  if (b.in.ndim != b.out.ndim || num_axes < 1 || num_axes > 3 || first_axis < 0 || first_axis + num_axes > b.in.ndim)
    return ffi::Error::InvalidArgument("resize: axes");
  if (b.out.dtype != b.in.dtype && b.out.dtype != DType::kF32)
    return ffi::Error::InvalidArgument("resize: output type");
  if (static_cast<int64_t>(roi.element_count()) != int64_t{2} * num_axes * b.out.n ||
      static_cast<int64_t>(filters.element_count()) != int64_t{2} * b.out.n)
    return ffi::Error::InvalidArgument("resize: size of roi or filters");
#ifdef JAXDALI_CUDA
  return LaunchKernel(LaunchResize, b, device, control, status);
#else
  (void)device;
  return ForEachSample(control, b.in, b.out, status, [&](int i) -> Status {
    ResizeJob job;
    Status s = b.Sample(i, &job);
    return s == kOk ? ResizeCpu(job) : s;
  });
#endif
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_resize, Resize,
                              JAXDALI_BIND_BATCH()
                                  .Arg<F32>()                   // roi [N, num_axes, 2], see ResizeBatch
                                  .Arg<I32>()                   // filters [N, 2]
                                  .Attr<int32_t>("first_axis")  // of the resized axes
                                  .Attr<int32_t>("num_axes")    // how many, adjacent
                                  .Attr<bool>("antialias")      // widen the filter when shrinking
                                  .Ret<ffi::AnyBuffer>()        // data
                                  .Ret<I32>(),                  // status
                              JAXDALI_HANDLER_TRAITS);

}  // namespace jaxdali
