// Resampling on CUDA: chooses the kernel and its types. One or two axes are resampled by tiles, see resize_kernel.h.
// For volumes (ResizeVolumes, in this file), one thread per output pixel adds up all its taps along all axes.
#include "ffi/common/launch.h"
#include "ffi/resize/resize.h"
#include "ffi/resize/resize_kernel.h"

namespace jaxdali {
namespace {

// The taps of one axis for the output samples of one thread. MoveTo goes to an output sample; Index and Weight are then
// the source sample and the normalized weight of its tap j, j < count().
class TapsOfThread {
 public:
  // Begins with an axis, before any output sample. `accumulate`: of nearest neighbours, each position adds the scale to
  // the one before; `relative`: positions count from the first source sample in use. See Nearest.
  JAXDALI_HD void Start(const Axis& axis, const FilterTables& tables, bool accumulate, bool relative) {
    axis_ = &axis;
    table_ = tables[axis.filter];
    last_ = static_cast<int>(axis.n_in) - 1;
    is_nearest_ = axis.filter == Interp::kNN;
    if (is_nearest_) nearest_ = Nearest::Make(axis, accumulate, relative);
    count_ = static_cast<int>(axis.support);
    output_ = -1;
  }

  // Goes to output sample o.
  JAXDALI_HD void MoveTo(int64_t o) {
    // A thread's next pixel mostly differs along x only.
    if (o == output_) return;
    norm_ = 1;
    if (!is_nearest_) {
      output_ = o;
      window_ = TapWindow::Of(*axis_, o);
      float sum = 0;
      for (int j = 0; j < count_; j++) sum += Raw(j);
      norm_ = sum != 0 ? 1 / sum : 0;
    } else {
      output_ = o;
      index_ = nearest_.Index(nearest_.accumulate ? nearest_.Accumulated(o) : nearest_.At(o));
    }
  }

  JAXDALI_HD int count() const { return count_; }
  JAXDALI_HD int64_t Index(int j) const {
    if (is_nearest_) return index_;
    const int i = window_.first + j;
    return i < 0 ? 0 : i > last_ ? last_ : i;
  }
  JAXDALI_HD float Weight(int j) const { return is_nearest_ ? 1.0f : Raw(j) * norm_; }

 private:
  // The weight before normalization.
  JAXDALI_HD float Raw(int j) const {
    return axis_->filter == Interp::kLinear ? window_.Linear(*axis_, j) : window_.Weight(*axis_, table_, j);
  }

  const Axis* axis_;
  FilterTable table_;
  Nearest nearest_;   // with nearest neighbours
  TapWindow window_;  // with other filters: the taps of `output_`
  bool is_nearest_;
  int count_, last_, index_;  // taps; the last source sample; the source sample of the nearest neighbour
  int64_t output_;            // the current output sample; -1: none yet
  float norm_;                // makes the sum of the weights 1
};

// The plan of a volume. A piece is kThreads output pixels.
struct VolumePlanner : ResizeBatch {
  struct Plan {
    int64_t pixels;
    ResizeJob job;
    Axes axes;
  };

  // Fills in the plan of sample i: what the threads that work on it need. An empty output has no pixels.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->pixels = 0;
    if (Status e = Sample(i, &s->job); e != kOk) return e;
    if (out.size(i) == 0) return kOk;
    s->pixels = s->job.outer;
    for (int a = 0; a < num_axes; a++) s->pixels *= s->job.out_extent[a];
    return s->axes.Make(s->job);
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return (plan.pixels + kThreads - 1) / kThreads; }
};

// Each thread makes all channels of a pixel, kGroup channels at a time.
template <class In, class Out>
struct ResizeVolumes : VolumePlanner {
  using Planner = VolumePlanner;

  FilterTables tables;
  WorkSplit split;

  struct Shared {
    Plan plan;
    FilterTables tables;
  };

  // The work of one CUDA block: its share of the pieces of all samples, which are pieces first ... end - 1 of each.
  // Thread t makes pixel t of each piece.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    Share(block, tables, &s.tables);
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      block.Phase([&](int thread) {
        Work(s.plan, s.tables, first * kThreads + thread,
             end * kThreads < s.plan.pixels ? end * kThreads : s.plan.pixels);
      });
    });
  }

 private:
  // Makes pixels begin, begin + kThreads, ... (below `end`) of the output, which is [outer, z, y, x].
  JAXDALI_HD static void Work(const Plan& s, const FilterTables& tables, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const Axis* axis = s.axes.axis;
    const In* in_data = static_cast<const In*>(s.job.in);
    const int64_t channels = s.job.inner;
    TapsOfThread z, y, x;
    z.Start(axis[0], tables, /*accumulate=*/true, /*relative=*/s.axes.second == 0);
    y.Start(axis[1], tables, /*accumulate=*/true, /*relative=*/s.axes.second == 1);
    x.Start(axis[2], tables, /*accumulate=*/false, /*relative=*/s.axes.second == 2);
    for (int64_t p = begin; p < end; p += kThreads) {
      const Quotient row = Divide(p, axis[2].n_out), slice = Divide(row.quotient, axis[1].n_out),
                     image = Divide(slice.quotient, axis[0].n_out);
      z.MoveTo(image.rest);
      y.MoveTo(slice.rest);
      x.MoveTo(row.rest);
      Out* to = static_cast<Out*>(s.job.out) + p * channels;
      for (int64_t c = 0; c < channels; c += kGroup) {
        const int group = channels - c < kGroup ? static_cast<int>(channels - c) : kGroup;
        float sum[kGroup] = {};
        for (int k = 0; k < z.count(); k++) {
          const int64_t from_z = image.quotient * axis[0].n_in + z.Index(k);
          for (int j = 0; j < y.count(); j++) {
            const In* line = in_data + (from_z * axis[1].n_in + y.Index(j)) * axis[2].n_in * channels + c;
            const float weight = z.Weight(k) * y.Weight(j);
            for (int i = 0; i < x.count(); i++) {
              const In* from = line + x.Index(i) * channels;
              const float w = weight * x.Weight(i);
              for (int g = 0; g < kGroup; g++)
                if (g < group) sum[g] = MulAdd(static_cast<float>(from[g]), w, sum[g]);
            }
          }
        }
        for (int g = 0; g < kGroup; g++)
          if (g < group) to[c + g] = ConvertEvenTo<Out>(sum[g]);
      }
    }
  }

  static constexpr int kGroup = 4;  // channels that are summed at a time
};

// Chooses the kernel by the number of axes, with known types.
template <class In, class Out>
const char* LaunchTypes(const ResizeBatch& b, const Samples& samples, void* stream) {
  if (b.num_axes == 3) {
    const FilterTables& tables = FilterTables::Get();
    return LaunchPlanned(ResizeVolumes<In, Out>{{b}, tables, /*split=*/{}}, samples,
                         b.out.capacity / kThreads + samples.n, stream);
  }
  return LaunchResizeTiles<In, Out>(Whole<ResizeBatch>{b}, samples, stream);
}

// Chooses the output's type: a float, or the input's (ResizeTypes).
template <class In>
const char* LaunchFrom(const ResizeBatch& b, const Samples& samples, void* stream) {
  switch (b.out.dtype) {
    case DType::kF32:
      return LaunchTypes<In, float>(b, samples, stream);
    case DType::kF16:
      return LaunchTypes<In, Half>(b, samples, stream);
    case DType::kBF16:
      return LaunchTypes<In, BFloat16>(b, samples, stream);
    default:
      return LaunchTypes<In, In>(b, samples, stream);
  }
}

}  // namespace

// Launches the kernel for the input's type. Returns null or an error message.
const char* LaunchResize(const ResizeBatch& b, const Samples& samples, void* stream) {
  switch (b.in.dtype) {
    case DType::kU8:
      return LaunchFrom<uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchFrom<int16_t>(b, samples, stream);
    case DType::kU16:
      return LaunchFrom<uint16_t>(b, samples, stream);
    case DType::kF16:
      return LaunchFrom<Half>(b, samples, stream);
    case DType::kBF16:
      return LaunchFrom<BFloat16>(b, samples, stream);
    case DType::kF32:
      return LaunchFrom<float>(b, samples, stream);
    default:
      return "resize: element type";
  }
}

}  // namespace jaxdali
