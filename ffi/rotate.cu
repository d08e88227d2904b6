// The affine warp on CUDA: one thread per output pixel, all its channels.
#include "ffi/common/launch.h"
#include "ffi/rotate.h"

namespace jaxdali {
namespace {

template <class In, class Out, int D, bool kLinear>
struct RotateKernel : RotateBatch {
  using Shared = RotateArgs;

  JAXDALI_HD Status Prepare(int i, RotateArgs* a) const { return Sample(i, a); }
  JAXDALI_HD void Share(int, RotateArgs*) const {}
  JAXDALI_HD void Work(const RotateArgs& a, int64_t begin, int64_t step) const {
    int64_t frame = a.channels, pixels = a.frames;
    for (int s = 0; s < D; s++) {
      frame *= a.in_size[s];
      pixels *= a.out_size[s];
    }
    for (int64_t p = begin; p < pixels; p += step) {
      const Quotient row = Divide(p, a.out_size[0]), slice = Divide(row.quotient, a.out_size[1]);
      Quotient volume{slice.quotient, 0};
      if constexpr (D == 3) volume = Divide(slice.quotient, a.out_size[2]);
      int64_t pos[D];
      RowStart(a, slice.rest, volume.rest, pos);
      for (int s = 0; s < D; s++) pos[s] += row.rest * a.map[s][0];
      WarpPixel<In, Out, D, kLinear>(a, static_cast<const In*>(a.in) + volume.quotient * frame, pos,
                                     static_cast<Out*>(a.out) + p * a.channels);
    }
  }
};

template <class In, class Out>
const char* LaunchTypes(const RotateBatch& b, const Samples& samples, void* stream) {
  if (b.dims == 2)
    return b.linear ? Launch(RotateKernel<In, Out, 2, true>{b}, samples, stream)
                    : Launch(RotateKernel<In, Out, 2, false>{b}, samples, stream);
  return b.linear ? Launch(RotateKernel<In, Out, 3, true>{b}, samples, stream)
                  : Launch(RotateKernel<In, Out, 3, false>{b}, samples, stream);
}

template <class In>
const char* LaunchFrom(const RotateBatch& b, const Samples& samples, void* stream) {
  return b.out.dtype == DType::kF32 ? LaunchTypes<In, float>(b, samples, stream)
                                    : LaunchTypes<In, In>(b, samples, stream);
}

}  // namespace

const char* LaunchRotate(const RotateBatch& b, const Samples& samples, void* stream) {
  switch (b.in.dtype) {
    case DType::kU8:
      return LaunchFrom<uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchFrom<int16_t>(b, samples, stream);
    case DType::kI32:
      return LaunchFrom<int32_t>(b, samples, stream);
    default:
      break;
  }
  switch (b.out.dtype) {
    case DType::kU8:
      return LaunchTypes<float, uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchTypes<float, int16_t>(b, samples, stream);
    case DType::kI32:
      return LaunchTypes<float, int32_t>(b, samples, stream);
    default:
      return LaunchTypes<float, float>(b, samples, stream);
  }
}

}  // namespace jaxdali
