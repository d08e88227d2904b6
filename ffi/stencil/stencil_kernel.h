// The CUDA kernels of window reductions. Blocks make tiles of the result. Sums take the rows of a window one after
// another; maxima and minima go along rows first, then across them. Windows that are too large for tiles, and those of
// volumes, are read from device memory by one thread for each element. Several sources compile them, each for one
// reduction.
#ifndef JAXDALI_FFI_STENCIL_STENCIL_KERNEL_H_
#define JAXDALI_FFI_STENCIL_STENCIL_KERNEL_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ffi/common/launch.h"
#include "ffi/common/tiles.h"
#include "ffi/stencil/median.h"
#include "ffi/stencil/stencil.h"

namespace jaxdali {

// Element i of an array, converted.
template <class Out>
JAXDALI_HD inline void StoreAs(DType type, void* to, int64_t i, float v) {
  WithKnown<Out>(type, [&](auto t) { static_cast<decltype(t)*>(to)[i] = ConvertTo<decltype(t)>(v); });
}

// Element i of a result.
struct Place {
  int64_t outer, inner, first[3];  // where its window begins

  // Finds the indices of element i in [outer, out_n[0], out_n[1], out_n[2], inner], from the innermost on.
  JAXDALI_HD Place(const StencilArgs& a, int64_t i) {
    Quotient q = Divide(i, a.inner);
    inner = q.rest;
    for (int k = 2; k >= 0; k--) {
      q = Divide(q.quotient, a.out_n[k]);
      first[k] = q.rest - a.anchor[k];
    }
    outer = q.quotient;
  }
};

// Element (z, y, x) of a window, or `outside` beyond a constant border.
JAXDALI_NOINLINE JAXDALI_HD inline float ValueAt(const StencilArgs& a, DType type, Border border, float outside,
                                                 const Place& p, int64_t z, int64_t y, int64_t x) {
  z = Inside(border, p.first[0] + z, a.n[0]);
  y = Inside(border, p.first[1] + y, a.n[1]);
  x = Inside(border, p.first[2] + x, a.n[2]);
  if (z < 0 || y < 0 || x < 0) return outside;
  return LoadElement<float>(type, a.in, (((p.outer * a.n[0] + z) * a.n[1] + y) * a.n[2] + x) * a.inner + p.inner);
}

// --- sums, maxima, minima --------------------------------------------------------------------------------------------

// Functions for Slide (common/slide.h). The sums of two windows, one below the other, to which the values of a row are
// added. Where only one window has the row, kUpper or kLower is false.
struct TwoSums {
  float upper, lower;
};
template <bool kUpper, bool kLower>
struct WindowSum {
  static constexpr bool kInAnyOrder = false;
  const float *upper, *lower;  // the weights of the row in each window

  struct OfTap {
    float upper, lower;
    JAXDALI_HD void operator()(TwoSums& sums, float v) const {
      if (kUpper) sums.upper += v * upper;
      if (kLower) sums.lower += v * lower;
    }
  };
  JAXDALI_HD static constexpr float Initial() { return 0; }
  JAXDALI_HD OfTap operator()(int k) const { return {kUpper ? upper[k] : 0, kLower ? lower[k] : 0}; }
};
using Sum = WindowSum<true, true>;
// Maximum or minimum, without values that are NaN. The same object is the reduction and, as all taps are alike, its
// function of each tap.
template <bool kMax>
struct Extreme {
  static constexpr bool kInAnyOrder = true;
  JAXDALI_HD static constexpr float Initial() { return kMax ? -INFINITY : INFINITY; }
  JAXDALI_HD Extreme operator()(int64_t) const { return *this; }
  JAXDALI_HD void operator()(float& extreme, float v) const {
    extreme = kMax ? median::Larger(extreme, v) : median::Smaller(v, extreme);
  }
  JAXDALI_HD void operator()(Four& extreme, const Four& v) const {
    JAXDALI_UNROLL
    for (int i = 0; i < 4; i++) (*this)(extreme.v[i], v.v[i]);
  }
};

struct ReductionPlanner : StencilBatch {
  struct Plan : StencilArgs {
    TilePlan tiles;  // if by_tiles
    int64_t pieces;  // tiles, or groups of kThreads elements
    bool by_tiles;
    float outside;  // the value beyond a constant border
  };

  // Fills in the plan of sample i, for the threads that work on it: by tiles if its windows are small enough, otherwise
  // element by element.
  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    const bool is_sum = reduction == StencilReduction::kSum;
    // Maxima and minima leave out what is beyond a constant border.
    a->outside = is_sum                                ? a->fill
                 : reduction == StencilReduction::kMax ? Extreme<true>::Initial()
                                                       : Extreme<false>::Initial();
    a->by_tiles = a->HasTiles() && a->window[2] <= kMostTileColumns && (is_sum || a->window[1] <= kMostTileTaps);
    a->pieces = (a->Size() + kThreads - 1) / kThreads;
    if (!a->by_tiles) return kOk;
    TilePlan& t = a->tiles;
    t.in_type = in.dtype;
    t.out_type = out.dtype;
    t.in = a->in;
    t.out = a->out;
    for (int k = 0; k < 2; k++) {  // rows and columns, which are axes 1 and 2 of the three
      t.n[k] = static_cast<int32_t>(a->n[k + 1]);
      t.out_n[k] = static_cast<int32_t>(a->out_n[k + 1]);
      t.taps[k] = static_cast<int32_t>(a->window[k + 1]);
      t.anchor[k] = static_cast<int32_t>(a->anchor[k + 1]);
    }
    t.inner = static_cast<int32_t>(a->inner);
    t.border = border;
    t.outside = a->outside;
    t.Cut(a->outer * a->n[0]);
    a->pieces = t.pieces;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& a) { return a.pieces; }
};

template <class In, class Out, class Reduction>
struct Windows : ReductionPlanner {
  using Planner = ReductionPlanner;
  static constexpr int kBlocksPerSm = 2;
  static constexpr bool kIsSum = std::is_same_v<Reduction, Sum>;

  struct NoRows {};
  struct Shared {
    Plan plan;
    Tile tile;
    std::conditional_t<kIsSum, NoRows, TileRows> rows;
  };
  WorkSplit split;

  // The work of one CUDA block: its share of the pieces of all samples. Without tiles, a thread makes one element. Sums
  // take the rows of a window one after another; maxima and minima go along rows first, then across.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) {
        if (!s.plan.by_tiles) {
          block.Phase([&](int thread) {
            const int64_t i = piece * kThreads + thread;
            if (i < s.plan.Size()) Element(s.plan, i);
          });
          continue;
        }
        const TilePlan& tiles = s.plan.tiles;
        FindTile(block, tiles, piece, &s.tile);
        if constexpr (kIsSum) {
          block.Phase([&](int thread) {
            WithSlider<In>(tiles, s.tile, thread, [&](const auto& slide) { Sums(s.plan, s.tile, slide); });
          });
        } else {
          constexpr float kInitial = Reduction::Initial();
          block.Phase([&](int thread) { AlongRows<In>(tiles, s.tile, thread, kInitial, Reduction{}, &s.rows); });
          block.Phase([&](int thread) { AcrossRows<Out>(tiles, s.tile, thread, kInitial, Reduction{}, s.rows); });
        }
      }
    });
  }

 private:
  // A thread has n sums along each of two neighbouring rows at a time, which share what they read: the windows of both
  // have all rows but the first, which only the upper one has, and the last, which only the lower one has.
  template <int n, int kInner>
  JAXDALI_HD static void Sums(const Plan& plan, const Tile& t, const RowSlider<In, n, kInner>& slide) {
    const TilePlan& a = plan.tiles;
    const int32_t down = a.taps[0], across = a.taps[1], end = slide.results ? t.rows : 0;
    const int64_t first = t.plane * a.out_n[0] + t.y;
    const float* const weights = plan.weights;
    for (int32_t m = 2 * slide.first; m < end; m += 2 * slide.stride) {
      TwoSums sums[n] = {};
      slide(m, WindowSum<true, false>{/*upper=*/weights, /*lower=*/nullptr}, sums);
      const float* row = weights;
      for (int32_t dy = 1; dy < down; dy++, row += across)
        slide(m + dy, Sum{/*upper=*/row + across, /*lower=*/row}, sums);
      slide(m + down, WindowSum<false, true>{/*upper=*/nullptr, /*lower=*/row}, sums);
      const DType type = a.out_type;
      const int64_t size = SizeAs<Out>(type), step = (kInner > 0 ? kInner : a.inner) * size, pitch = a.out_row * size;
      uint8_t* to = static_cast<uint8_t*>(a.out) + (first + m) * pitch + (t.column + slide.offset) * size;
      JAXDALI_UNROLL
      for (int y = 0; y < 2; y++, to += pitch) {
        if (m + y >= end) break;
        auto store = [&](int r) { StoreAs<Out>(type, to + r * step, /*i=*/0, y == 0 ? sums[r].upper : sums[r].lower); };
        if (slide.results == n)
          Unrolled<0, n>(n, store);
        else
          Unrolled<0, n>(slide.results - 1, store);
      }
    }
  }

  // Element i of the result, of any window.
  JAXDALI_HD void Element(const Plan& a, int64_t i) const {
    const Place p(a, i);
    float result = Reduction::Initial();
    int64_t tap = 0;
    for (int64_t z = 0; z < a.window[0]; z++)
      for (int64_t y = 0; y < a.window[1]; y++)
        for (int64_t x = 0; x < a.window[2]; x++, tap++) {
          const float v = ValueAt(a, in.dtype, border, a.outside, p, z, y, x);
          if constexpr (kIsSum)
            result += v * a.weights[tap];
          else
            Reduction{}(result, v);
        }
    StoreAs<Out>(out.dtype, a.out, i, result);
  }
};

// Launches sums, maxima or minima of windows for the types. Returns null or an error message.
template <class Reduction>
const char* LaunchWindows(const StencilBatch& b, const Samples& samples, void* stream) {
  // Most samples are cut into tiles, which have more than 8 * kThreads elements.
  const int64_t pieces = b.out.capacity / kThreads / 8 + samples.n;
  auto launch = [&](auto from, auto to) {
    return LaunchPlanned(Windows<decltype(from), decltype(to), Reduction>{{{b}}, /*split=*/{}}, samples, pieces,
                         stream);
  };
  if (b.in.dtype == DType::kU8 && b.out.dtype == DType::kU8) return launch(uint8_t{}, uint8_t{});
  if (b.in.dtype == DType::kF32 && b.out.dtype == DType::kF32) return launch(float{}, float{});
  return launch(AnyType{}, AnyType{});
}

extern template const char* LaunchPlans(const ReductionPlanner&, const WorkSplit&, void*);  // stencil.cu
extern template const char* LaunchWindows<Extreme<true>>(const StencilBatch&, const Samples&,
                                                         void*);  // stencil_extreme.cu
extern template const char* LaunchWindows<Extreme<false>>(const StencilBatch&, const Samples&, void*);

const char* LaunchMedians(const StencilBatch& b, const Samples& samples, void* stream);  // stencil_median.cu

}  // namespace jaxdali

#endif  // JAXDALI_FFI_STENCIL_STENCIL_KERNEL_H_
