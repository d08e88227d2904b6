// CPU kernel of reductions. Rows are converted to doubles and joined, with AVX2 or NEON (JoinRowSimd) or without
// (JoinRowPortable). Run decides how rows lie in the input: results that are neighbours are computed together.
#include <algorithm>

#include "ffi/common/rows.h"
#include "ffi/common/simd.h"
#include "ffi/reduce/reduce.h"

namespace jaxdali {
namespace {

constexpr int kLanes = 16;  // partial results, for vectors; a fixed number, for the same result on every machine

// Joins the terms of n values to `result` [lanes], with `center` [lanes] (see Term). Value i goes to lane i % lanes.
template <Reduction kReduction>
JAXDALI_INLINE void JoinRow(const double* __restrict values, int64_t n, const double* __restrict center, int lanes,
                            double* __restrict result) {
  int64_t i = 0;
  if (lanes == kLanes) {
    double sums[kLanes];
    std::copy_n(result, kLanes, sums);
    for (; i + kLanes <= n; i += kLanes)
      for (int k = 0; k < kLanes; k++) sums[k] = Join(kReduction, sums[k], Term(kReduction, values[i + k], center[k]));
    std::copy_n(sums, kLanes, result);
  } else {
    for (; i + lanes <= n; i += lanes)
      for (int k = 0; k < lanes; k++)
        result[k] = Join(kReduction, result[k], Term(kReduction, values[i + k], center[k]));
  }
  for (int k = 0; i < n; i++, k = k + 1 < lanes ? k + 1 : 0)
    result[k] = Join(kReduction, result[k], Term(kReduction, values[i], center[k]));
}

template <Reduction kReduction>
void JoinRowPortable(const double* values, int64_t n, const double* center, int lanes, double* result) {
  JoinRow<kReduction>(values, n, center, lanes, result);
}
#if defined(JAXDALI_SIMD)
template <Reduction kReduction>
JAXDALI_SIMD void JoinRowSimd(const double* values, int64_t n, const double* center, int lanes, double* result) {
  JoinRow<kReduction>(values, n, center, lanes, result);
}
#endif

using RowFunction = void (*)(const double*, int64_t, const double*, int, double*);

template <Reduction kReduction>
RowFunction Choose() {
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return JoinRowSimd<kReduction>;
#endif
  return JoinRowPortable<kReduction>;
}

// JoinRow of a reduction, in the version for this CPU.
RowFunction RowFunctionOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return Choose<Reduction::kSum>();
    case Reduction::kSquares:
      return Choose<Reduction::kSquares>();
    case Reduction::kMin:
      return Choose<Reduction::kMin>();
    default:
      return Choose<Reduction::kMax>();
  }
}

// Calls f(offset) for each index of the axes, which are given innermost first.
template <class F>
void ForEach(int axes, const int64_t* n, const int64_t* stride, F f) {
  int64_t index[8] = {}, offset = 0;
  for (int d = 0; d < axes; d++)
    if (n[d] == 0) return;
  for (;;) {
    f(offset);
    int d = 0;
    for (; d < axes; d++) {
      offset += stride[d];
      if (++index[d] < n[d]) break;
      offset -= n[d] * stride[d];
      index[d] = 0;
    }
    if (d == axes) return;
  }
}

// Computes all results of a sample, which has terms.
void Run(const ReduceArgs& a) {
  const RowFunction join = RowFunctionOf(a.reduction);
  double values[kRow];
  // Results that are neighbours in the input, such as the channels of an image, are computed in one pass over it.
  const bool grouped = a.kept > 0 && a.kept_stride[0] == 1 && a.reduced > 0 && a.kept_n[0] <= kRow;
  const int64_t group = grouped ? a.kept_n[0] : 1;
  const int outer = grouped ? 1 : 0;
  // Their elements are contiguous: whole pixels are loaded at a time, and lanes repeat the results until vectors are
  // full.
  const bool packed = grouped && a.reduced_stride[0] == group;
  int64_t lanes = grouped ? group : kLanes;  // a multiple of `group`
  if (packed)
    while (lanes < kLanes) lanes += group;
  double result[kRow + kLanes], center[kRow + kLanes];
  int64_t result_index = 0;
  // Computes one group of results after another. `base`: the element of the input at which the group begins.
  ForEach(a.kept - outer, a.kept_n + outer, a.kept_stride + outer, [&](int64_t base) {
    std::fill_n(result, lanes, Start(a.reduction));
    for (int64_t k = 0; k < lanes; k++) center[k] = a.center ? a.center[result_index + (grouped ? k % group : 0)] : 0;
    const int64_t run = a.reduced > 0 ? a.reduced_n[0] : 1, stride = a.reduced > 0 ? a.reduced_stride[0] : 1;
    const int inner = a.reduced > 0 ? 1 : 0;
    // Joins one run along the innermost reduced axis after another.
    ForEach(a.reduced - inner, a.reduced_n + inner, a.reduced_stride + inner, [&](int64_t offset) {
      if (packed || !grouped) {
        const int64_t total = packed ? run * group : run, piece = kRow / lanes * lanes, step = packed ? 1 : stride;
        for (int64_t i = 0; i < total; i += piece) {
          const int64_t n = std::min(piece, total - i);
          LoadRow(a.in_type, a.in, base + offset + i * step, step, n, values);
          join(values, n, center, static_cast<int>(lanes), result);
        }
      } else {
        for (int64_t i = 0; i < run; i++) {
          LoadRow(a.in_type, a.in, base + offset + i * stride, /*step=*/1, group, values);
          join(values, group, center, static_cast<int>(lanes), result);
        }
      }
    });
    // Joins the lanes of each result.
    for (int64_t k = group; k < lanes; k++) result[k % group] = Join(a.reduction, result[k % group], result[k]);
    StoreRow(a.out_type, result, group, a.out, result_index);
    result_index += group;
  });
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Reduce(const ReduceBatch& batch, int i) {
  ReduceArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (a.terms == 0) {
    const double none = Start(a.reduction);
    for (int64_t k = 0; k < a.results; k++) StoreRow(a.out_type, &none, /*n=*/1, a.out, k);
  } else if (a.results > 0) {
    Run(a);
  }
  return kOk;
}

}  // namespace jaxdali
