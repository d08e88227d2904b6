// Reductions on CUDA: a block for each result of many elements, a thread for each of few.
#include "ffi/common/launch.h"
#include "ffi/reduce/reduce.h"

namespace jaxdali {
namespace {

struct Reductions : ReduceBatch {
  static constexpr int64_t kMany = 64;

  Samples samples;
  int blocks;  // of each sample

  struct Shared {
    bool runs;
    ReduceArgs args;
    double part[kThreads];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int i = block.index / blocks, own = block.index % blocks;
    block.Phase([&](int thread) {
      if (thread > 0) return;
      Status code = kOk;
      s.runs = false;
      if (samples.present[i]) {
        code = in.valid(i) && out.valid(i) ? Sample(i, &s.args) : kInternal;
        s.runs = code == kOk;
      }
      if (own == 0) samples.status[i] = code;
    });
    if (!s.runs) return;
    const ReduceArgs& a = s.args;
    if (a.each < kMany) {
      block.Phase([&](int thread) {
        const int64_t step = static_cast<int64_t>(blocks) * kThreads;
        for (int64_t r = static_cast<int64_t>(own) * kThreads + thread; r < a.results; r += step)
          StoreElement(a.out_type, a.out, r, Part(a, r, 0, 1));
      });
      return;
    }
    for (int64_t r = own; r < a.results; r += blocks) {
      block.Phase([&](int thread) { s.part[thread] = Part(a, r, thread, kThreads); });
      for (int half = kThreads / 2; half > 0; half /= 2)
        block.Phase([&](int thread) {
          if (thread < half) s.part[thread] = Join(a.what, s.part[thread], s.part[thread + half]);
        });
      block.Phase([&](int thread) {
        if (thread == 0) StoreElement(a.out_type, a.out, r, s.part[0]);
      });
    }
  }

 private:
  JAXDALI_HD static int64_t Place(int64_t i, int axes, const int64_t* n, const int64_t* stride) {
    int64_t at = 0;
    for (int d = 0; d < axes; d++) {
      const Quotient q = Divide(i, n[d]);
      at += q.rest * stride[d];
      i = q.quotient;
    }
    return at;
  }
  // Of result r, elements first, first + step, ...
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
  if (samples.n == 0) return nullptr;
  const int blocks = static_cast<int>(std::clamp<int64_t>(b.out.capacity / b.out.n / 4, 1, 256));
  return LaunchBlocks(Reductions{b, samples, blocks}, int64_t{samples.n} * blocks, stream);
}

}  // namespace jaxdali
