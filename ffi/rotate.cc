// Binding of the affine warp.
#include "ffi/rotate.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Impl(ffi::AnyBuffer in, I32 in_offsets, I32 in_shapes, I32 out_offsets, I32 out_shapes, I32 control, F64 map,
                F32 fill, int32_t dims, int32_t first, bool linear, bool has_fill, ffi::Result<ffi::AnyBuffer> out,
                ffi::ResultBuffer<ffi::S32> status) {
  Batch from, to;
  if (auto e = ToBatch(in, in_offsets, in_shapes, &from); e.failure()) return e;
  if (auto e = ToBatch(*out, out_offsets, out_shapes, &to); e.failure()) return e;
  if ((dims != 2 && dims != 3) || first < 0 || from.ndim != first + dims + 1 || to.ndim != from.ndim)
    return ffi::Error::InvalidArgument("rotate: rank of the data");
  if (static_cast<int64_t>(map.element_count()) != int64_t{to.n} * dims * (dims + 1) ||
      static_cast<int>(fill.element_count()) != to.n)
    return ffi::Error::InvalidArgument("rotate: one map and one fill value per sample");
  if (!RotateTypes(from.dtype, to.dtype)) return ffi::Error::InvalidArgument("rotate: element types");
  return ForEachSample(control, from, to, status, [&](int i) -> Status {
    RotateArgs a;
    a.in_type = from.dtype;
    a.out_type = to.dtype;
    a.in = from.bytes(i);
    a.out = to.bytes(i);
    a.dims = dims;
    a.frames = 1;
    for (int d = 0; d < first; d++) {
      a.frames *= from.dim(i, d);
      if (to.dim(i, d) != from.dim(i, d)) return kInternal;
    }
    for (int s = 0; s < dims; s++) {
      a.in_size[s] = from.dim(i, first + dims - 1 - s);
      a.out_size[s] = to.dim(i, first + dims - 1 - s);
    }
    a.channels = from.dim(i, first + dims);
    if (to.dim(i, first + dims) != a.channels) return kInternal;
    a.linear = linear;
    a.has_fill = has_fill;
    a.fill = fill.typed_data()[i];
    if (!SetMap(map.typed_data() + int64_t{i} * dims * (dims + 1), &a)) return kInternal;
    return RotateSample(a);
  });
}

}  // namespace
}  // namespace jaxdali

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_rotate, jaxdali::Impl,
                              JAXDALI_BIND_BATCH()
                                  .Arg<jaxdali::F64>()     // map [N, dims, dims + 1], see SetMap
                                  .Arg<jaxdali::F32>()     // fill [N]
                                  .Attr<int32_t>("dims")   // spatial axes: 2 or 3
                                  .Attr<int32_t>("first")  // axes before them: frames
                                  .Attr<bool>("linear")
                                  .Attr<bool>("has_fill")
                                  .Ret<jaxdali::ffi::AnyBuffer>()
                                  .Ret<jaxdali::I32>());
