// The canvases on CUDA, with one thread per 16 bytes of the output. It looks for the topmost region at its first
// element, and again where that region or a row ends.
#include "ffi/common/launch.h"
#include "ffi/common/units.h"
#include "ffi/paste/paste.h"

namespace jaxdali {
namespace {

// The plan of a canvas. Its regions are read from device memory, since there may be many.
struct PastePlanner : PasteBatch {
  struct Plan {
    int64_t units;  // of 16 bytes of the canvas
    Units to;       // the canvas
    int32_t i;      // the sample
    int32_t channels;
    Divisor row, height;  // elements of a row, rows of a frame
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    const Sample shape = Shape(out, i);
    s->units = s->to.Set(out.bytes(i), out.size(i), out.dtype);
    s->i = i;
    s->channels = static_cast<int32_t>(shape.channels);
    s->row = Divisor(shape.width * shape.channels);
    s->height = Divisor(shape.height);
    return Check(i);
  }
};

// If elements are only moved, V, In and Out are one type, the unsigned integer of their size. Otherwise they are
// converted by way of V, float or double.
template <class V, class In, class Out>
struct PasteCanvas : PastePlanner {
  using Planner = PastePlanner;

  // The work of a thread: units first, first + kThreads, ... of the canvas, 16 bytes each. Where there is no region, it
  // is 0.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    WithKnown<Out>(out.dtype, [&](auto t) {
      using T = decltype(t);
      for (int64_t k = first; k < end; k += kThreads) {
        int64_t i = s.to.First(k);
        // Most units lie in one run. Others look for the next run at each of its ends.
        Run run = RunAt(s, i);
        if (s.to.template IsWhole<T>(k) && run.left >= s.to.per_unit) {
          if (run.from < 0)
            s.to.template Write<T>(k, [] { return T{}; });
          else
            s.to.template Write<T>(k, [&] { return Element<T>(run.from++); });
          continue;
        }
        s.to.template WriteInLoop<T>(k, [&] {
          if (run.left == 0) run = RunAt(s, i);
          i++;
          run.left--;
          return run.from < 0 ? T{} : Element<T>(run.from++);
        });
      }
    });
  }

 private:
  // Elements of one row of the canvas from the same region.
  struct Run {
    int64_t from;  // the first one's number in the input; -1: no region
    int64_t left;  // how many
  };

  // The run that begins at element i of the canvas: from the topmost region there, up to where it ends or a region
  // above it begins.
  JAXDALI_NOINLINE JAXDALI_HD Run RunAt(const Plan& s, int64_t i) const {
    const auto row = s.row.Divide(static_cast<uint64_t>(i)), frame = s.height.Divide(row.quotient);
    const int64_t x = static_cast<int64_t>(row.rest), y = static_cast<int64_t>(frame.rest);
    Run run{-1, s.row.n() - x};
    for (int j = most - 1; j >= 0; j--) {
      const PasteRegion& r = regions[static_cast<int64_t>(s.i) * most + j];
      // The place of the canvas's element in the region: `down` rows, and `right` elements of a row.
      const int64_t down = y - r.out_y, right = x - int64_t{r.out_x} * s.channels, n = int64_t{r.width} * s.channels;
      if (r.source < 0 || down < 0 || down >= r.height || right >= n) continue;
      if (right < 0) {  // it begins further on in this row
        if (run.left > -right && n > 0) run.left = -right;
        continue;
      }
      if (run.left > n - right) run.left = n - right;
      const Sample from = Shape(in, r.source);
      const int64_t source_row = static_cast<int64_t>(frame.quotient) * from.height + r.in_y + down;
      run.from = in.start(r.source) + (source_row * from.width + r.in_x) * s.channels + right;
      break;
    }
    return run;
  }
  // Element i of the input's buffer, as an element of the output.
  template <class T>
  JAXDALI_HD T Element(int64_t i) const {
    if constexpr (std::is_integral_v<V>)
      return static_cast<const T*>(in.data)[i];
    else
      return ConvertTo<T>(LoadAs<V, In>(in.dtype, in.data, i));
  }
};

template <class V, class In, class Out>
const char* LaunchCanvas(const PasteBatch& b, const Samples& samples, void* stream) {
  return Launch(PasteCanvas<V, In, Out>{{b}}, samples, stream);
}

}  // namespace

// Launches the kernel: elements of one type are moved by their size, others converted. Returns null or an error
// message.
const char* LaunchPaste(const PasteBatch& b, const Samples& samples, void* stream) {
  if (b.in.dtype != b.out.dtype) {
    if (FitsFloat(b.in.dtype)) return LaunchCanvas<float, AnyType, AnyType>(b, samples, stream);
    return LaunchCanvas<double, AnyType, AnyType>(b, samples, stream);
  }
  switch (SizeOf(b.in.dtype)) {
    case 1:
      return LaunchCanvas<uint8_t, uint8_t, uint8_t>(b, samples, stream);
    case 2:
      return LaunchCanvas<uint16_t, uint16_t, uint16_t>(b, samples, stream);
    case 4:
      return LaunchCanvas<uint32_t, uint32_t, uint32_t>(b, samples, stream);
    default:
      return LaunchCanvas<uint64_t, uint64_t, uint64_t>(b, samples, stream);
  }
}

}  // namespace jaxdali
