// Binding and handlers of the affine warp.
#include "ffi/warp/warp.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(Device device, ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes,
                I32 control, F64 map, F32 fill, int32_t dims, int32_t first, bool linear, bool has_fill,
                ffi::Result<ffi::AnyBuffer> out, ffi::ResultBuffer<ffi::S32> status) {
  WarpBatch b{.in = {},
                .out = {},
                .map = map.typed_data(),
                .fill = fill.typed_data(),
                .dims = dims,
                .first = first,
                .linear = linear,
                .has_fill = has_fill};
  if (auto e = ToBatch(in, in_offsets, in_shapes, &b.in); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &b.out); e.failure()) return e;
  if ((dims != 2 && dims != 3) || first < 0 || b.in.ndim != first + dims + 1 || b.out.ndim != b.in.ndim)
    return ffi::Error::InvalidArgument("warp: rank of the data");
  if (static_cast<int64_t>(map.element_count()) != int64_t{b.out.n} * dims * (dims + 1) ||
      static_cast<int>(fill.element_count()) != b.out.n)
    return ffi::Error::InvalidArgument("warp: one map and one fill value per sample");
  if (!WarpTypes(b.in.dtype, b.out.dtype)) return ffi::Error::InvalidArgument("warp: element types");
#ifdef JAXDALI_CUDA
  return LaunchKernel(LaunchWarp, b, device, control, status);
#else
  (void)device;
  return ForEachSample(control, b.in, b.out, status, [&](int i) -> Status {
    WarpArgs a;
    Status s = b.Sample(i, &a);
    if (s == kOk) WarpSample(a);
    return s;
  });
#endif
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_warp, jaxdali::Impl,
                              JAXDALI_BIND_BATCH()
                                  .Arg<jaxdali::F64>()     // map [N, dims, dims + 1], see SetMap
                                  .Arg<jaxdali::F32>()     // fill [N]
                                  .Attr<int32_t>("dims")   // spatial axes: 2 or 3
                                  .Attr<int32_t>("first")  // axes before them: frames
                                  .Attr<bool>("linear")
                                  .Attr<bool>("has_fill")
                                  .Ret<jaxdali::ffi::AnyBuffer>()
                                  .Ret<jaxdali::I32>(),
                              JAXDALI_HANDLER_TRAITS);
