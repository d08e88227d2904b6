// Binding and CPU handler of the kernel `resize`.
#include "ffi/resize.h"

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

ffi::Error Resize(ffi::AnyBuffer data, I32 offsets, I32 shapes, I32 out_offsets, I32 out_shapes, I32 control, F32 roi,
                  I32 filters, int32_t first_axis, int32_t num_axes, bool antialias,
                  ffi::Result<ffi::AnyBuffer> out_data, ffi::ResultBuffer<ffi::S32> status) {
  Batch in, out;
  if (auto e = ToBatch(data, offsets, shapes, &in); !e.success()) return e;
  if (auto e = ToBatch(*out_data, out_offsets, out_shapes, &out); !e.success()) return e;
  if (in.ndim != out.ndim || num_axes < 1 || num_axes > 3 || first_axis < 0 || first_axis + num_axes > in.ndim)
    return ffi::Error::InvalidArgument("resize: axes");
  if (out.dtype != in.dtype && out.dtype != DType::kF32) return ffi::Error::InvalidArgument("resize: output type");
  if (static_cast<int64_t>(roi.element_count()) != int64_t{2} * num_axes * out.n ||
      static_cast<int64_t>(filters.element_count()) != int64_t{2} * out.n)
    return ffi::Error::InvalidArgument("resize: size of roi or filters");
  const float* interval = roi.typed_data();
  const int32_t* filter = filters.typed_data();
  return ForEachSample(control, in, out, status, [&](int i) -> Status {
    ResizeJob job;
    job.in_type = in.dtype;
    job.out_type = out.dtype;
    job.in = in.bytes(i);
    job.out = out.bytes(i);
    job.outer = job.inner = 1;
    job.num_axes = num_axes;
    for (int d = 0; d < in.ndim; d++) {
      int a = d - first_axis;
      if (a >= 0 && a < num_axes) {
        job.in_extent[a] = in.dim(i, d);
        job.out_extent[a] = out.dim(i, d);
        continue;
      }
      if (in.dim(i, d) != out.dim(i, d)) return kInternal;
      (a < 0 ? job.outer : job.inner) *= in.dim(i, d);
    }
    for (int a = 0; a < num_axes; a++) {
      job.lo[a] = interval[(static_cast<int64_t>(i) * num_axes + a) * 2];
      job.hi[a] = interval[(static_cast<int64_t>(i) * num_axes + a) * 2 + 1];
    }
    job.min_filter = static_cast<Interp>(filter[2 * i]);
    job.mag_filter = static_cast<Interp>(filter[2 * i + 1]);
    job.antialias = antialias;
    return ResizeCpu(job);
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_resize, Resize,
                              JAXDALI_BIND_BATCH()
                                  .Arg<F32>()  // roi [N, num_axes, 2]: source interval; first > second: mirrored
                                  .Arg<I32>()  // filters [N, 2]: when shrinking, when enlarging (Interp)
                                  .Attr<int32_t>("first_axis")  // of the resized axes
                                  .Attr<int32_t>("num_axes")    // how many, adjacent
                                  .Attr<bool>("antialias")      // widen the filter when shrinking
                                  .Ret<ffi::AnyBuffer>()        // data
                                  .Ret<I32>());                 // status

}  // namespace jaxdali
