// Reductions on CUDA. A result of many elements has a block of threads, one of few elements a thread.
#include "ffi/common/launch.h"
#include "ffi/reduce/reduce.h"

namespace jaxdali {
namespace {

struct Reductions : ReduceBatch {
  static constexpr int64_t kMany = 64;

  Parts parts;

  struct Plan {
    int64_t pieces;
    ReduceArgs args;
  };
  struct Shared {
    int slot;
    Plan plan;
    double part[kThreads];
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args); e != kOk) return e;
    s->pieces = s->args.each < kMany ? (s->args.results + kThreads - 1) / kThreads : s->args.results;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.pieces; }

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    parts.ForEach(block, s, [&](int64_t first, int64_t end) {
      if (s.plan.args.each < kMany)
        Few(block, s, first, end);
      else
        for (int64_t r = first; r < end; r++) Many(block, s, r);
    });
  }

 private:
  template <class Block>
  JAXDALI_HD static void Few(const Block& block, const Shared& s, int64_t first, int64_t end) {
    const ReduceArgs& a = s.plan.args;
    block.Phase([&](int thread) {
      for (int64_t r = first * kThreads + thread; r < end * kThreads && r < a.results; r += kThreads)
        StoreElement(a.out_type, a.out, r, Part(a, r, 0, 1));
    });
  }
  template <class Block>
  JAXDALI_HD static void Many(const Block& block, Shared& s, int64_t r) {
    const ReduceArgs& a = s.plan.args;
    block.Phase([&](int thread) { s.part[thread] = Part(a, r, thread, kThreads); });
    for (int half = kThreads / 2; half > 0; half /= 2)
      block.Phase([&](int thread) {
        if (thread < half) s.part[thread] = Join(a.what, s.part[thread], s.part[thread + half]);
      });
    block.Phase([&](int thread) {
      if (thread == 0) StoreElement(a.out_type, a.out, r, s.part[0]);
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
  JAXDALI_HD static double Part(const ReduceArgs& a, int64_t r, int64_t first, int64_t step) {
    const int64_t base = Place(r, a.kept, a.kept_n, a.kept_stride);
    const double center = a.center ? a.center[r] : 0;
    double result = Start(a.what);
    for (int64_t i = first; i < a.each; i += step) {
      const double v = LoadElement<double>(a.in_type, a.in, base + Place(i, a.reduced, a.reduced_n, a.reduced_stride));
      result = Join(a.what, result, Term(a.what, v, center));
    }
    return result;
  }
};

}  // namespace

const char* LaunchReduce(const ReduceBatch& b, const Samples& samples, void* stream) {
  return LaunchPlanned(Reductions{b, {}}, samples, b.out.capacity, stream);
}

}  // namespace jaxdali
