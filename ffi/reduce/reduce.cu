// Reductions on CUDA. A block joins some elements of neighbouring results. A result of many elements is made of several
// such parts, which a second launch joins.
#include "ffi/common/launch.h"
#include "ffi/reduce/reduce.h"

namespace jaxdali {
namespace {

struct Reductions : ReduceBatch {
  static constexpr int kFew = 64;     // elements of a result: fewer are joined by one thread
  static constexpr int kEach = 64;    // elements that a thread joins, at least
  static constexpr int kParts = 256;  // of a result, at most: a block joins them
  static constexpr int kAtOnce = 8;   // elements of a thread that are loaded together

  bool joins;  // the second launch
  WorkSplit split;

  struct Plan {
    ReduceArgs args;
    double* partial;  // [chunks, results] if there are several chunks
    int64_t chunk;    // elements of a result in each chunk
    int64_t chunks, tiles;
    int32_t lanes, rows;  // threads: neighbouring results, and elements of each
  };
  struct Shared {
    int slot;
    Plan plan;
    double part[kThreads];
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    ReduceArgs& a = s->args;
    if (Status e = Sample(i, &a); e != kOk) return e;
    Split(s);
    s->partial = reinterpret_cast<double*>(scratch) + in.start(i) / kElementsPerPart;
    if (!joins) return kOk;
    if (s->chunks == 1) {
      s->tiles = 0;
      return kOk;
    }
    const int64_t chunks = s->chunks;
    a.in_type = DType::kF64;
    a.in = s->partial;
    a.what = a.what == Reduction::kSquares ? Reduction::kSum : a.what;
    a.kept = a.reduced = 1;
    a.kept_n[0] = a.reduced_stride[0] = a.results;
    a.kept_stride[0] = 1;
    a.reduced_n[0] = a.each = chunks;
    Split(s);
    s->chunk = chunks;
    s->chunks = 1;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.tiles * plan.chunks; }

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) Join(block, s, piece);
    });
  }

 private:
  // Results that are neighbours in the input are read together. There are less chunks than elements by
  // kElementsPerPart: each row has more than kEach / 2 elements of every chunk.
  JAXDALI_HD static void Split(Plan* s) {
    const ReduceArgs& a = s->args;
    const bool few = a.each < kFew;
    const int64_t neighbours = few ? a.results : a.kept > 0 && a.kept_stride[0] == 1 ? a.kept_n[0] : 1;
    s->lanes = static_cast<int32_t>(neighbours < 1 ? 1 : neighbours < kThreads ? neighbours : kThreads);
    s->rows = few ? 1 : kThreads / s->lanes;
    const int64_t fill = (a.each + s->rows * kParts - 1) / (s->rows * kParts);
    s->chunk = s->rows * (fill > kEach ? fill : kEach);
    s->chunks = a.each > 0 ? (a.each + s->chunk - 1) / s->chunk : 1;
    s->tiles = (a.results + s->lanes - 1) / s->lanes;
  }

  template <class Block>
  JAXDALI_HD static void Join(const Block& block, Shared& s, int64_t piece) {
    const ReduceArgs& a = s.plan.args;
    const Quotient place = Divide(piece, s.plan.tiles);
    const int64_t chunk = place.quotient, first = place.rest * s.plan.lanes;
    const int lanes = s.plan.lanes, rows = s.plan.rows;
    block.Phase([&](int thread) {
      const int row = thread / lanes;
      const int64_t r = first + thread % lanes, end = (chunk + 1) * s.plan.chunk;
      s.part[thread] = row < rows && r < a.results
                           ? Part(a, r, chunk * s.plan.chunk + row, end < a.each ? end : a.each, rows)
                           : Start(a.what);
    });
    for (int n = rows, half; n > 1; n = half) {
      half = (n + 1) / 2;
      block.Phase([&](int thread) {
        if (thread < (n - half) * lanes)
          s.part[thread] = jaxdali::Join(a.what, s.part[thread], s.part[thread + half * lanes]);
      });
    }
    block.Phase([&](int thread) {
      const int64_t r = first + thread;
      if (thread >= lanes || r >= a.results) return;
      if (s.plan.chunks > 1)
        s.plan.partial[chunk * a.results + r] = s.part[thread];
      else
        StoreElement(a.out_type, a.out, r, s.part[thread]);
    });
  }
  JAXDALI_HD static int64_t Place(int64_t i, int axes, const int64_t* n, const int64_t* stride) {
    int64_t at = 0;
    for (int d = 0; d < axes; d++) {
      const Quotient q = Divide(i, n[d]);
      at += q.rest * stride[d];
      i = q.quotient;
    }
    return at;
  }
  // Joins elements first, first + step, ... of result r.
  JAXDALI_HD static double Part(const ReduceArgs& a, int64_t r, int64_t first, int64_t end, int step) {
    const int64_t base = Place(r, a.kept, a.kept_n, a.kept_stride);
    const double center = a.center ? a.center[r] : 0;
    double result = Start(a.what);
    WithType(a.in_type, [&](auto t) {
      using T = decltype(t);
      const T* from = static_cast<const T*>(a.in) + base;
      int64_t i = first;
      if (a.reduced <= 1) {
        const int64_t stride = a.reduced == 1 ? a.reduced_stride[0] : 0, by = step * stride;
        const T* at = from + i * stride;
        for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step, at += kAtOnce * by) {
          double v[kAtOnce];
          for (int k = 0; k < kAtOnce; k++) v[k] = AsDouble(at[k * by]);
          JoinAll(a.what, v, center, &result);
        }
      }
      for (; i < end; i += step)
        result = jaxdali::Join(
            a.what, result, Term(a.what, AsDouble(from[Place(i, a.reduced, a.reduced_n, a.reduced_stride)]), center));
    });
    return result;
  }
  JAXDALI_HD static void JoinAll(Reduction what, const double (&v)[kAtOnce], double center, double* result) {
    switch (what) {
      case Reduction::kSum:
        return JoinAll<Reduction::kSum>(v, center, result);
      case Reduction::kSquares:
        return JoinAll<Reduction::kSquares>(v, center, result);
      case Reduction::kMin:
        return JoinAll<Reduction::kMin>(v, center, result);
      case Reduction::kMax:
        return JoinAll<Reduction::kMax>(v, center, result);
    }
  }
  template <Reduction kWhat>
  JAXDALI_HD static void JoinAll(const double (&v)[kAtOnce], double center, double* result) {
    for (double x : v) *result = jaxdali::Join(kWhat, *result, Term(kWhat, x, center));
  }
  template <class T>
  JAXDALI_HD static double AsDouble(T v) {
    if constexpr (kIsSmallFloat<T>)
      return static_cast<double>(static_cast<float>(v));
    else
      return static_cast<double>(v);
  }
};

}  // namespace

const char* LaunchReduce(const ReduceBatch& b, const Samples& samples, void* stream) {
  const int64_t most = b.in.capacity / b.kElementsPerPart;
  if (b.scratch_size * static_cast<int64_t>(sizeof(float)) < most * static_cast<int64_t>(sizeof(double)))
    return "reduce: the working memory is too small";
  const int64_t results = b.out.capacity;
  if (const char* what = LaunchPlanned(Reductions{b, false, {}}, samples, results + most, stream)) return what;
  return most == 0 ? nullptr : LaunchPlanned(Reductions{b, true, {}}, samples, results, stream);
}

}  // namespace jaxdali
