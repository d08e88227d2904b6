// The affine warp on CUDA: one thread makes all channels of an output pixel. Images have a kernel of their own
// (warp_kernel.h).
#include "ffi/common/launch.h"
#include "ffi/warp/warp.h"
#include "ffi/warp/warp_kernel.h"

namespace jaxdali {
namespace {

// The plan of a volume: its arguments. A unit of work is an output pixel.
struct VolumePlanner : WarpBatch {
  static constexpr int D = 3;
  struct Plan : WarpArgs {
    int64_t units;  // pixels
  };

  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    a->units = a->frames;
    for (int s = 0; s < D; s++) a->units *= a->out_size[s];
    return kOk;
  }
};

template <class In, class Out, bool kLinear>
struct WarpVolumes : VolumePlanner {
  using Planner = VolumePlanner;

  // The work of a thread: output pixels begin, begin + kThreads, ...
  JAXDALI_HD void Work(const Plan& a, int64_t begin, int64_t end) const {
    int64_t frame = a.channels;  // elements of an input volume
    for (int s = 0; s < D; s++) frame *= a.in_size[s];
    for (int64_t p = begin; p < end; p += kThreads) {
      const Quotient row = Divide(p, a.out_size[0]), slice = Divide(row.quotient, a.out_size[1]);
      const Quotient volume = Divide(slice.quotient, a.out_size[2]);
      int64_t pos[D];
      RowStart(a, slice.rest, volume.rest, pos);
      for (int s = 0; s < D; s++) pos[s] += row.rest * a.map[s][0];
      WarpPixel<In, Out, D, kLinear>(a, static_cast<const In*>(a.in) + volume.quotient * frame, pos,
                                     static_cast<Out*>(a.out) + p * a.channels);
    }
  }
};

// Chooses the kernel by the number of dimensions.
template <class In, class Out, bool kLinear>
const char* LaunchInterp(const WarpBatch& b, const Samples& samples, void* stream) {
  if (b.dims == 3) return Launch(WarpVolumes<In, Out, kLinear>{{b}}, samples, stream);
  return LaunchWarpImages<In, Out, kLinear>(Whole<WarpBatch>{b}, samples, stream);
}

template <class In, class Out>
const char* LaunchTypes(const WarpBatch& b, const Samples& samples, void* stream) {
  return b.linear ? LaunchInterp<In, Out, true>(b, samples, stream) : LaunchInterp<In, Out, false>(b, samples, stream);
}

template <class In>
const char* LaunchFrom(const WarpBatch& b, const Samples& samples, void* stream) {
  return b.out.dtype == DType::kF32 ? LaunchTypes<In, float>(b, samples, stream)
                                    : LaunchTypes<In, In>(b, samples, stream);
}

}  // namespace

// Launches the kernel for a pair of types. The pairs are those of WarpTypes: equal types, from float to any type, and
// from any type to float. Returns null or an error message.
const char* LaunchWarp(const WarpBatch& b, const Samples& samples, void* stream) {
  switch (b.in.dtype) {
    case DType::kU8:
      return LaunchFrom<uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchFrom<int16_t>(b, samples, stream);
    case DType::kI32:
      return LaunchFrom<int32_t>(b, samples, stream);
    case DType::kF16:
      return LaunchFrom<Half>(b, samples, stream);
    case DType::kBF16:
      return LaunchFrom<BFloat16>(b, samples, stream);
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
    case DType::kF16:
      return LaunchTypes<float, Half>(b, samples, stream);
    case DType::kBF16:
      return LaunchTypes<float, BFloat16>(b, samples, stream);
    default:
      return LaunchTypes<float, float>(b, samples, stream);
  }
}

}  // namespace jaxdali
