// Separable filters on CUDA. One launch filters along the two inner axes by tiles: along the rows into shared memory,
// then across them. Large windows, and axes beside these two, have a launch each, and intermediate results are floats
// in the working memory.
#include "ffi/common/launch.h"
#include "ffi/common/tiles.h"
#include "ffi/filter/filter.h"

namespace jaxdali {
namespace {

// *sum += v * weight, fused on a GPU.
JAXDALI_HD inline void AddProduct(float v, float weight, float* sum) {
#if defined(__CUDA_ARCH__)
  *sum = __fmaf_rn(v, weight, *sum);
#else
  *sum += v * weight;
#endif
}

// Adds the products of a window's values and weights to the sums of float or Four.
struct WeightedSum {
  static constexpr bool kInAnyOrder = false;
  const float* weights;

  struct OfTap {
    float weight;
    JAXDALI_HD void operator()(float& sum, float v) const { AddProduct(v, weight, &sum); }
    JAXDALI_HD void operator()(Four& sum, const Four& v) const {
      JAXDALI_UNROLL
      for (int i = 0; i < 4; i++) AddProduct(v.v[i], weight, &sum.v[i]);
    }
  };
  JAXDALI_HD OfTap operator()(int k) const { return {weights[k]}; }
};

// One of several passes: reads the input or floats in the working memory, and writes the output or floats there.
struct FilterPass : FilterBatch {
  const float* from;  // null: the input
  float* to;          // null: the output

  // Describes this pass for sample i.
  JAXDALI_HD Status Find(int i, FilterArgs* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    if (from) a->in = from + out.start(i);
    if (from) a->in_type = DType::kF32;
    if (to) a->out = to + out.start(i);
    if (to) a->out_type = DType::kF32;
    return kOk;
  }
};

// --- one axis --------------------------------------------------------------------------------------------------------

// A unit is eight results along the axis, of one element across it, or four results of four elements.
struct AxisPlanner : FilterPass {
  int axis;  // one of the three
  struct Plan : FilterArgs {
    int64_t units, extent, stride;  // stride: elements from one position along the axis to the next
    Divisor across, along;          // units across and along the axis
    bool by_four;                   // a unit is four elements wide, which are read and written together
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Find(i, a); s != kOk) return s;
    int64_t outer = a->outer;
    a->stride = a->inner;
    for (int k = 0; k < axis; k++) outer *= a->n[k];
    for (int k = axis + 1; k < 3; k++) a->stride *= a->n[k];
    a->extent = a->n[axis];
    const auto addresses = reinterpret_cast<uintptr_t>(a->in) | reinterpret_cast<uintptr_t>(a->out);
    a->by_four = a->stride % 4 == 0 && addresses % 16 == 0;
    const int64_t across = a->by_four ? a->stride / 4 : a->stride, steps = a->by_four ? 4 : 8;
    const int64_t along = (a->extent + steps - 1) / steps;
    a->across = Divisor(across);
    a->along = Divisor(along);
    a->units = outer * along * across;
    return kOk;
  }
};

// Filters along one axis, from device memory.
template <class In, class Out>
struct AlongAxis : AxisPlanner {
  using Planner = AxisPlanner;

  // The work of a thread: units first, first + kThreads, ..., of four or eight results along the axis.
  JAXDALI_HD void Work(const Plan& a, int64_t first, int64_t end) const {
    for (int64_t i = first; i < end; i += kThreads) {
      const auto column = a.across.Divide(static_cast<uint64_t>(i)), row = a.along.Divide(column.quotient);
      const int64_t start = static_cast<int64_t>(row.quotient) * a.extent * a.stride;
      const int64_t x = static_cast<int64_t>(row.rest), across = static_cast<int64_t>(column.rest);
      if (a.by_four)
        Run<Four, 4>(a, x * 4, start + across * 4);
      else
        Run<float, 8>(a, x * 8, start + across);
    }
  }

 private:
  // Results x to x + n - 1 along the axis, whose element 0 is number `start`. V is one element or four.
  template <class V, int n>
  JAXDALI_HD void Run(const Plan& a, int64_t x, int64_t start) const {
    const DType in_type = a.in_type, out_type = a.out_type;
    const int taps = a.taps[axis];
    const WeightedSum sum_of{a.window[axis]};
    const int64_t extent = a.extent, step = a.stride * SizeAs<In>(in_type), out_step = a.stride * SizeAs<Out>(out_type);
    const uint8_t* from = static_cast<const uint8_t*>(a.in) + start * SizeAs<In>(in_type);
    V sums[n] = {};
    int64_t position = x - taps / 2;
    if (position >= 0 && position + n - 1 + taps <= extent) {
      from += position * step;
      auto next = [&] {
        const V v = Load<V>(in_type, from);
        from += step;
        return v;
      };
      Slide<n, V>(taps, next, sum_of, sums);
    } else {
      auto next = [&] { return Load<V>(in_type, from + Reflect(position++, extent) * step); };
      Slide<n, V>(taps, next, sum_of, sums);
    }
    uint8_t* to = static_cast<uint8_t*>(a.out) + start * SizeAs<Out>(out_type) + x * out_step;
    JAXDALI_UNROLL
    for (int r = 0; r < n; r++, to += out_step)
      if (x + r < extent) Store(out_type, to, sums[r]);
  }
  template <class V>
  JAXDALI_HD static V Load(DType type, const uint8_t* from) {
    if constexpr (std::is_same_v<V, Four>)
      return LoadFour<In>(type, from);
    else
      return LoadAs<float, In>(type, from, /*i=*/0);
  }
  JAXDALI_HD static void Store(DType type, uint8_t* to, const Four& v) { StoreFour<Out>(type, to, v); }
  JAXDALI_HD static void Store(DType type, uint8_t* to, float v) {
    WithKnown<Out>(type, [&](auto t) { *reinterpret_cast<decltype(t)*>(to) = ConvertTo<decltype(t)>(v); });
  }
};

// --- the two inner axes ----------------------------------------------------------------------------------------------

// Tiles of the two inner axes (common/tiles.h). A third axis counts as planes.
struct TilePlanner : FilterPass {
  struct Plan : TilePlan {
    float weights[2][kMostTileTaps];  // across the rows, and along them
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    FilterArgs args;
    if (Status s = Find(i, &args); s != kOk) return s;
    if (args.n[2] * args.inner >> 31 != 0) return kInternal;  // elements of a row are counted in 32 bits
    a->in_type = args.in_type;
    a->out_type = args.out_type;
    a->in = args.in;
    a->out = args.out;
    a->inner = static_cast<int32_t>(args.inner);
    a->border = Border::kReflect101;
    a->outside = 0;
    for (int k = 0; k < 2; k++) {  // rows and columns, which are axes 1 and 2 of the three
      a->n[k] = a->out_n[k] = static_cast<int32_t>(args.n[k + 1]);
      a->taps[k] = args.taps[k + 1];
      a->anchor[k] = a->taps[k] / 2;
      for (int t = 0; t < a->taps[k]; t++) a->weights[k][t] = args.window[k + 1][t];
    }
    a->Cut(args.outer * args.n[0]);
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& a) { return a.pieces; }
};

// Filters along the two inner axes, by way of shared memory.
template <class In, class Out>
struct BothAxes : TilePlanner {
  using Planner = TilePlanner;
  static constexpr int kBlocksPerSm = 3;
  struct Shared {
    Plan plan;
    Tile tile;
    TileRows rows;
  };

  WorkSplit split;

  // The work of one CUDA block: its share of the tiles of all samples.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) {
        FindTile(block, s.plan, piece, &s.tile);
        block.Phase([&](int thread) {
          AlongRows<In>(s.plan, s.tile, thread, /*initial=*/0.0f, WeightedSum{s.plan.weights[1]}, &s.rows);
        });
        block.Phase([&](int thread) {
          AcrossRows<Out>(s.plan, s.tile, thread, /*initial=*/0.0f, WeightedSum{s.plan.weights[0]}, s.rows);
        });
      }
    });
  }
};

// Calls f(In{}, Out{}) with the types for which the kernels are compiled.
template <class F>
auto WithTypes(DType in, DType out, F f) {
  if (in == DType::kU8 && out == DType::kU8) return f(uint8_t{}, uint8_t{});
  if (in == DType::kU8 && out == DType::kF32) return f(uint8_t{}, float{});
  if (in == DType::kF32 && out == DType::kU8) return f(float{}, uint8_t{});
  if (in == DType::kF32 && out == DType::kF32) return f(float{}, float{});
  return f(AnyType{}, AnyType{});
}

}  // namespace

// Launches the passes one after another, from the innermost axis on. Returns null or an error message.
const char* LaunchFilter(const FilterBatch& b, const Samples& samples, void* stream) {
  if (b.scratch_size < b.out.capacity * (b.axes - 1)) return "filter: the working memory is too small";
  float* next = b.scratch;  // memory for the next intermediate batch
  FilterPass pass{b, /*from=*/nullptr, /*to=*/nullptr};
  // Launches a pass; the one that filters along axis 3 - b.axes is the last.
  auto launch = [&](int axis, auto launch_pass) {
    pass.to = axis == 3 - b.axes ? nullptr : next;
    const DType in = pass.from ? DType::kF32 : b.in.dtype, out = pass.to ? DType::kF32 : b.out.dtype;
    const char* error = WithTypes(in, out, launch_pass);
    pass.from = pass.to;
    next += b.out.capacity;
    return error;
  };
  // From the innermost axis on. Small windows along the two inner axes are one pass.
  int axis = 2;
  if (b.axes > 1 && b.most <= kMostTileTaps) {
    axis = 1;
    const char* error = launch(axis, [&](auto from, auto to) {
      const int64_t tiles = b.out.capacity / (kTileRows * kTileColumns) + samples.n;
      return LaunchPlanned(BothAxes<decltype(from), decltype(to)>{{{pass}}, /*split=*/{}}, samples, tiles, stream);
    });
    if (error) return error;
    axis = 0;
  }
  for (; axis >= 3 - b.axes; axis--) {
    const char* error = launch(axis, [&](auto from, auto to) {
      return Launch(AlongAxis<decltype(from), decltype(to)>{{{pass}, axis}}, samples, stream);
    });
    if (error) return error;
  }
  return nullptr;
}

}  // namespace jaxdali
