// The strided window on CUDA, with one thread per 16 bytes of the output. LaunchWindow chooses:
//
//   without fill, elements only copied   StridedKernel (common/strided.h); ByteWindows for mirrored RGB images
//   all others                           ComputedWindows (window_kernel.h)
//
// window_tile.h is for windows of images that another kernel makes (ffi/chain/chain.cu).
#include "ffi/common/strided.h"
#include "ffi/common/units.h"
#include "ffi/window/window.h"
#include "ffi/window/window_kernel.h"

namespace jaxdali {
namespace {

// The windows as Sources of StridedKernel.
struct Windows : WindowBatch {
  // Describes the window of sample i by strides alone. LaunchWindow uses it where elements are only copied and there is
  // no fill: then a window that reaches outside the input is an error, and all indices lie inside.
  JAXDALI_HD Status Find(int i, Strided* from) const {
    WindowArgs a;
    if (Status s = Sample(i, &a); s != kOk) return s;
    from->Clear();
    from->start = a.start;
    for (int d = 0; d < a.ndim; d++) from->Add(a.extent[d], a.stride[d]);
    return kOk;
  }
};

// Windows of bytes without fill, of which those of mirrored RGB images take whole units at a time.
struct ByteWindows : StridedKernel<Windows, uint8_t> {
  using Base = StridedKernel<Windows, uint8_t>;

  // The work of a thread: units first, first + kThreads, ... of the output, 16 bytes each.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const int row = s.from.ndim - 2, pixel = s.from.ndim - 1;
    // The innermost axis has the three bytes of a pixel, and the next pixel of the row lies before this one.
    const bool mirrored =
        s.from.ndim >= 2 && s.from.stride[row] == -3 && s.from.stride[pixel] == 1 && s.from.extent[pixel].n() == 3;
    if (!mirrored) return Base::Work(s, first, end);
    for (int64_t k = first; k < end; k += kThreads) {
      uint32_t words[kUnitWords];
      if (s.to.IsWhole<uint8_t>(k) && Mirror(s, s.to.First(k), words))
        WriteWords(s.to.out + s.to.First(k), words);
      else
        Base::Work(s, k, k + 1);  // this unit alone
    }
  }

 private:
  // Reads the words of a unit, which has bytes of six pixels. Returns false if they are not in one row, or if words of
  // the input would reach outside its buffer.
  JAXDALI_HD bool Mirror(const Plan& s, int64_t i, uint32_t* words) const {
    constexpr int kPixels = 6;
    const auto q = s.from.extent[s.from.ndim - 1].Divide(static_cast<uint64_t>(i));
    int64_t offset = s.from.start, left = 0;
    uint64_t rest = q.quotient;
    for (int d = s.from.ndim - 2; d >= 0; d--) {
      const auto r = s.from.extent[d].Divide(rest);
      offset += static_cast<int64_t>(r.rest) * s.from.stride[d];
      if (d == s.from.ndim - 2) left = s.from.extent[d].n() - static_cast<int64_t>(r.rest);
      rest = r.quotient;
    }
    if (left < kPixels) return false;
    // The bytes of these pixels in the input's order; the last of the output's is the first. Five words contain them.
    const uint8_t *p = s.in + offset - 3 * (kPixels - 1), *begin = static_cast<const uint8_t*>(this->in.data);
    const int offset_in_word = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
    p -= offset_in_word;
    if (p < begin || s.end - p < 24) return false;  // six words of memory are read, of which Funnel makes five
    uint32_t in[5], low = ReadWord(p);
    JAXDALI_UNROLL
    for (int w = 0; w < 5; w++) {
      const uint32_t high = ReadWord(p + 4 * (w + 1));
      in[w] = Funnel(low, high, 8 * offset_in_word);
      low = high;
    }
    // Pixel 5 has bytes 15 to 17, pixel 4 has bytes 12 to 14, and so on: `out` has bytes 15 16 17 12, 13 14 9 10, ...
    // The unit begins with byte q.rest of its first pixel.
    const uint32_t out[5] = {Permute(in[3], in[4], 0x0543), Permute(in[2], in[3], 0x2165),
                             Permute(in[1], in[2], 0x4327), Permute(in[0], in[1], 0x0543),
                             Permute(in[0], in[0], 0x0021)};
    JAXDALI_UNROLL
    for (int w = 0; w < kUnitWords; w++) words[w] = Funnel(out[w], out[w + 1], 8 * static_cast<int>(q.rest));
    return true;
  }
};

// Launches a copy with fill of elements that have the size of T. Returns null or an error message.
template <class T>
const char* LaunchMoves(const WindowBatch& b, const Samples& samples, void* stream) {
  if (Counts32(b.in) && Counts32(b.out)) return LaunchComputedWindows<T, T, T, uint32_t>(b, samples, stream);
  return LaunchComputedWindows<T, T, T, uint64_t>(b, samples, stream);
}

}  // namespace

template const char* LaunchPlans(const SamplePlanner<WindowPlanner>&, const WorkSplit&, void*);

// Launches a copy (ByteWindows for bytes, StridedKernel for others) where elements are only copied and there is no
// fill, otherwise ComputedWindows. Returns null or an error message.
const char* LaunchWindow(const WindowBatch& b, const Samples& samples, void* stream) {
  if (b.moves() && b.fills == 0) {
    if (SizeOf(b.in.dtype) == 1) return Launch(ByteWindows{{{{b}}}}, samples, stream);
    return LaunchStrided(Windows{b}, samples, stream);
  }
  if (!b.moves())
    return WithKernelTypes(b.in, b.out, [&](auto v, auto from, auto to, auto index) {
      return LaunchComputedWindows<decltype(v), decltype(from), decltype(to), decltype(index)>(b, samples, stream);
    });
  switch (SizeOf(b.in.dtype)) {
    case 1:
      return LaunchMoves<uint8_t>(b, samples, stream);
    case 2:
      return LaunchMoves<uint16_t>(b, samples, stream);
    case 4:
      return LaunchMoves<uint32_t>(b, samples, stream);
    default:
      return LaunchMoves<uint64_t>(b, samples, stream);
  }
}

}  // namespace jaxdali
