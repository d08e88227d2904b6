// Reductions on CUDA. A block joins some elements of neighbouring results. A result of many elements is made of several
// such parts, which a second launch joins.
#include "ffi/common/launch.h"
#include "ffi/reduce/reduce.h"

namespace jaxdali {
namespace {

struct Reductions : ReduceBatch {
  static constexpr int kFew = 64;        // elements of a result: fewer are joined by one thread
  static constexpr int kPerThread = 64;  // elements that a thread joins, at least
  static constexpr int kParts = 256;     // of a result, at most: a block joins them
  static constexpr int kAtOnce = 8;      // elements of a thread that are loaded together

  bool joins;  // the second launch
  WorkSplit split;

  struct Plan {
    ReduceArgs args;
    double* partial;        // [chunks, results] if there are several chunks
    int64_t chunk;          // elements of a result in each chunk
    int64_t chunks, tiles;  // chunks of a result; groups of neighbouring results that a block joins together
    int32_t lanes, rows;    // threads: neighbouring results, and elements of each
  };
  struct Shared {
    Plan plan;
    double part[kThreads];
  };

  // Fills in the plan of sample i: what the threads that work on it need. In the second launch, samples with one chunk
  // have no work.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    ReduceArgs& a = s->args;
    if (Status e = Sample(i, &a); e != kOk) return e;
    Split(s);
    s->partial = reinterpret_cast<double*>(scratch) + in.start(i) / kElementsPerPart;
    if (!joins) return kOk;
    // The second launch reduces the partial results [chunks, results] along the chunks.
    if (s->chunks == 1) {
      s->tiles = 0;
      return kOk;
    }
    const int64_t chunks = s->chunks;
    a.in_type = DType::kF64;
    a.in = s->partial;
    a.reduction = a.reduction == Reduction::kSquares ? Reduction::kSum : a.reduction;
    a.kept = a.reduced = 1;
    a.kept_n[0] = a.reduced_stride[0] = a.results;
    a.kept_stride[0] = 1;
    a.reduced_n[0] = a.terms = chunks;
    Split(s);
    s->chunk = chunks;
    s->chunks = 1;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.tiles * plan.chunks; }

  // The work of one CUDA block: its share of the pieces of all samples. A piece is a chunk of a tile.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) Join(block, s, piece);
    });
  }

 private:
  // Sets the members of the plan that follow from `args`. Results that are neighbours in the input are read together.
  // The partial results fit into the working memory: if there are several chunks, they have on average more than
  // kPerThread / 2 elements for each of the rows, which is kElementsPerPart.
  JAXDALI_HD static void Split(Plan* s) {
    const ReduceArgs& a = s->args;
    const bool few = a.terms < kFew;
    const int64_t neighbours = few ? a.results : a.kept > 0 && a.kept_stride[0] == 1 ? a.kept_n[0] : 1;
    s->lanes = static_cast<int32_t>(neighbours < 1 ? 1 : neighbours < kThreads ? neighbours : kThreads);
    s->rows = few ? 1 : kThreads / s->lanes;
    const int64_t fill = (a.terms + s->rows * kParts - 1) / (s->rows * kParts);
    s->chunk = s->rows * (fill > kPerThread ? fill : kPerThread);
    s->chunks = a.terms > 0 ? (a.terms + s->chunk - 1) / s->chunk : 1;
    s->tiles = (a.results + s->lanes - 1) / s->lanes;
  }

  // A piece: a block joins one chunk of `lanes` results. Each thread joins some elements of a result, then the threads
  // of a result join theirs, by halves.
  template <class Block>
  JAXDALI_HD static void Join(const Block& block, Shared& s, int64_t piece) {
    const ReduceArgs& a = s.plan.args;
    const Quotient place = Divide(piece, s.plan.tiles);
    const int64_t chunk = place.quotient, first = place.rest * s.plan.lanes;
    const int lanes = s.plan.lanes, rows = s.plan.rows;
    // Thread (row, lane) joins elements row, row + rows, ... of the chunk of its result.
    block.Phase([&](int thread) {
      const int row = thread / lanes;
      const int64_t r = first + thread % lanes, end = (chunk + 1) * s.plan.chunk;
      s.part[thread] = row < rows && r < a.results
                           ? Part(a, r, chunk * s.plan.chunk + row, end < a.terms ? end : a.terms, rows)
                           : Start(a.reduction);
    });
    for (int n = rows, half; n > 1; n = half) {
      half = (n + 1) / 2;
      block.Phase([&](int thread) {
        if (thread < (n - half) * lanes)
          s.part[thread] = jaxdali::Join(a.reduction, s.part[thread], s.part[thread + half * lanes]);
      });
    }
    // The first thread of each result has all of it.
    block.Phase([&](int thread) {
      const int64_t r = first + thread;
      if (thread >= lanes || r >= a.results) return;
      if (s.plan.chunks > 1)
        s.plan.partial[chunk * a.results + r] = s.part[thread];
      else
        StoreElement(a.out_type, a.out, r, s.part[thread]);
    });
  }
  // The offset of index i of some axes, the first of which is the innermost.
  JAXDALI_HD static int64_t Place(int64_t i, int axes, const int64_t* n, const int64_t* stride) {
    int64_t offset = 0;
    for (int d = 0; d < axes; d++) {
      const Quotient q = Divide(i, n[d]);
      offset += q.rest * stride[d];
      i = q.quotient;
    }
    return offset;
  }
  // Joins elements first, first + step, ... (below `end`) of result r.
  JAXDALI_HD static double Part(const ReduceArgs& a, int64_t r, int64_t first, int64_t end, int step) {
    const int64_t base = Place(r, a.kept, a.kept_n, a.kept_stride);
    const double center = a.center ? a.center[r] : 0;
    double result = Start(a.reduction);
    WithType(a.in_type, [&](auto t) {
      using T = decltype(t);
      const T* from = static_cast<const T*>(a.in) + base;
      int64_t i = first;
      if (a.reduced <= 1) {  // one stride: no divisions, and several loads at a time
        const int64_t stride = a.reduced == 1 ? a.reduced_stride[0] : 0, distance = step * stride;
        const T* element = from + i * stride;
        for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step, element += kAtOnce * distance) {
          double v[kAtOnce];
          for (int k = 0; k < kAtOnce; k++) v[k] = AsDouble(element[k * distance]);
          JoinAll(a.reduction, v, center, &result);
        }
      }
      for (; i < end; i += step)
        result = jaxdali::Join(
            a.reduction, result,
            Term(a.reduction, AsDouble(from[Place(i, a.reduced, a.reduced_n, a.reduced_stride)]), center));
    });
    return result;
  }
  // Joins kAtOnce elements, with one switch for all of them.
  JAXDALI_HD static void JoinAll(Reduction reduction, const double (&v)[kAtOnce], double center, double* result) {
    switch (reduction) {
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
  template <Reduction kReduction>
  JAXDALI_HD static void JoinAll(const double (&v)[kAtOnce], double center, double* result) {
    for (double x : v) *result = jaxdali::Join(kReduction, *result, Term(kReduction, x, center));
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

// Launches the reduction, and the one that joins partial results if there may be some. Returns null or an error
// message.
const char* LaunchReduce(const ReduceBatch& b, const Samples& samples, void* stream) {
  const int64_t most = b.in.capacity / b.kElementsPerPart;  // parts of results: each is a double in the working memory
  if (b.scratch_size * static_cast<int64_t>(sizeof(float)) < most * static_cast<int64_t>(sizeof(double)))
    return "reduce: the working memory is too small";
  const int64_t results = b.out.capacity;
  if (const char* error = LaunchPlanned(Reductions{b, /*joins=*/false, /*split=*/{}}, samples, results + most, stream))
    return error;
  return most == 0 ? nullptr : LaunchPlanned(Reductions{b, /*joins=*/true, /*split=*/{}}, samples, results, stream);
}

}  // namespace jaxdali
