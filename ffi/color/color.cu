// The linear map of channels on CUDA, with one thread per four pixels, or per pixel if types and numbers of channels
// are not the usual ones.
#include "ffi/color/color.h"
#include "ffi/common/launch.h"
#include "ffi/common/units.h"

namespace jaxdali {
namespace {

// The plan does not depend on types, so all kernels share it (LaunchPlans is compiled once).
struct ColorPlanner : ColorBatch {
  int pixels_of_unit;  // pixels of a thread at a time

  struct Plan {
    int64_t units;  // of pixels_of_unit pixels
    int64_t pixels;
    const uint8_t* from;
    uint8_t* to;
    float
        matrix[kMaxColors * (kMaxColors + 1)];  // for each channel of the output the factors of the input's, an offset
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->pixels = Pixels(i);
    s->units = (s->pixels + pixels_of_unit - 1) / pixels_of_unit;
    s->from = in.bytes(i);
    s->to = out.bytes(i);
    for (int k = 0; k < out_channels * (in_channels + 1); k++) s->matrix[k] = Matrix(i)[k];
    return s->pixels < 0 ? kInternal : kOk;
  }
};

// The types and numbers of channels are known when compiling, or they are AnyType and 0.
template <class V, class In, class Out, int kIn, int kOut>
struct Colors : ColorPlanner {
  using Planner = ColorPlanner;
  static constexpr int kPixels = kIn > 0 ? 4 : 1;

  // The work of a thread: units first, first + kThreads, ..., each of kPixels pixels.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t k = first; k < end; k += kThreads) {
      int64_t p = k * kPixels;
      if constexpr (kIn == 0) {
        AnyPixel(s, p);
      } else if (p + kPixels <= s.pixels) {
        Map<kPixels>(s, p);
      } else {
        for (; p < s.pixels; p++) Map<1>(s, p);
      }
    }
  }

 private:
  // Maps some pixels from pixel p on, in registers. Products are added in the order of the CPU kernel.
  template <int kPixelsAtOnce>
  JAXDALI_HD static void Map(const Plan& s, int64_t p) {
    V from[kPixelsAtOnce * kIn];
    Out to[kPixelsAtOnce * kOut];
    LoadElements<In, kPixelsAtOnce * kIn>(reinterpret_cast<const In*>(s.from) + p * kIn, from);
    JAXDALI_UNROLL
    for (int c = 0; c < kOut; c++) {
      const float* m = s.matrix + c * (kIn + 1);
      JAXDALI_UNROLL
      for (int q = 0; q < kPixelsAtOnce; q++) {
        V sum = from[q * kIn] * static_cast<V>(m[0]);
        JAXDALI_UNROLL
        for (int i = 1; i < kIn; i++) sum += from[q * kIn + i] * static_cast<V>(m[i]);
        to[q * kOut + c] = ConvertTo<Out>(sum + static_cast<V>(m[kIn]));
      }
    }
    StoreElements<Out, kPixelsAtOnce * kOut>(reinterpret_cast<Out*>(s.to) + p * kOut, to);
  }
  // Maps pixel p, of any type and number of channels.
  JAXDALI_HD void AnyPixel(const Plan& s, int64_t p) const {
    V pixel[kMaxColors];
    for (int k = 0; k < in_channels; k++) pixel[k] = LoadElement<V>(in.dtype, s.from, p * in_channels + k);
    for (int c = 0; c < out_channels; c++) {
      const float* m = s.matrix + c * (in_channels + 1);
      V sum = pixel[0] * static_cast<V>(m[0]);
      for (int k = 1; k < in_channels; k++) sum += pixel[k] * static_cast<V>(m[k]);
      StoreElement(out.dtype, s.to, p * out_channels + c, sum + static_cast<V>(m[in_channels]));
    }
  }
};

template <class V, class In, class Out, int kIn, int kOut>
const char* LaunchColors(const ColorBatch& b, const Samples& samples, void* stream) {
  using Kernel = Colors<V, In, Out, kIn, kOut>;
  return Launch(Kernel{{b, Kernel::kPixels}}, samples, stream);
}

}  // namespace

// Launches the kernel for the types and numbers of channels. Returns null or an error message.
const char* LaunchColor(const ColorBatch& b, const Samples& samples, void* stream) {
  return WithKernelTypes(b.in, b.out, [&](auto v, auto from, auto to, auto) {
    using V = decltype(v);
    using In = decltype(from);
    using Out = decltype(to);
    if constexpr (!std::is_same_v<In, AnyType>) {
      // Pairs that occur with images: RGB and gray. The two digits are the channels of the input and of the output.
      const int channels = 10 * b.in_channels + b.out_channels;
      if (channels == 33) return LaunchColors<V, In, Out, 3, 3>(b, samples, stream);
      if (channels == 31) return LaunchColors<V, In, Out, 3, 1>(b, samples, stream);
      if (channels == 13) return LaunchColors<V, In, Out, 1, 3>(b, samples, stream);
      if (channels == 11) return LaunchColors<V, In, Out, 1, 1>(b, samples, stream);
    }
    return LaunchColors<V, AnyType, AnyType, 0, 0>(b, samples, stream);
  });
}

}  // namespace jaxdali
