// Sums, sums of squares, minima and maxima over some axes of each sample, computed in double.
#ifndef JAXDALI_FFI_REDUCE_REDUCE_H_
#define JAXDALI_FFI_REDUCE_REDUCE_H_

#include <limits>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

enum class Reduction : int32_t { kSum, kSquares, kMin, kMax };

// One sample. Neighbouring axes of the same kind are merged.
struct ReduceArgs {
  DType in_type, out_type;
  const void* in;
  void* out;
  const double* center;  // kSquares: subtracted before squaring, one number per result; null: 0
  Reduction reduction;
  int kept, reduced;                  // numbers of axes
  int64_t kept_n[8], kept_stride[8];  // strides of the input
  int64_t reduced_n[8], reduced_stride[8];
  int64_t results, terms;  // number of results, and of elements that each joins
};

// A reduction starts with this value, joins the terms of all elements, and joins partial results in the same way.
JAXDALI_HD inline double Start(Reduction reduction) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return reduction == Reduction::kMin ? kInfinite : reduction == Reduction::kMax ? -kInfinite : 0.0;
}
// The reduction of two partial results, or of one and a term.
JAXDALI_HD inline double Join(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kMin:
      return b < a ? b : a;
    case Reduction::kMax:
      return b > a ? b : a;
    default:
      return a + b;
  }
}
JAXDALI_HD inline double Term(Reduction reduction, double v, double center) {
  return reduction == Reduction::kSquares ? (v - center) * (v - center) : v;
}

// The operands of the custom call.
struct ReduceBatch {
  // CUDA: the working memory has a double for each of this number of elements of the input. The parts of a sample's
  // results are fewer.
  static constexpr int64_t kElementsPerPart = 32;

  Batch in, out;
  const double* center;  // in the shape of the output; or null
  Reduction reduction;
  unsigned axes;   // bit d: axis d is reduced
  float* scratch;  // CUDA only: parts of results
  int64_t scratch_size;

  // Describes sample i. The caller has checked that it lies inside both buffers. kInternal: the output has another
  // size.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, ReduceArgs* a) const {
    a->in_type = in.dtype;
    a->out_type = out.dtype;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->center = center ? center + out.start(i) : nullptr;
    a->reduction = reduction;
    a->kept = a->reduced = 0;
    a->results = a->terms = 1;
    int64_t stride = 1;
    for (int d = in.ndim - 1; d >= 0; d--) {  // innermost first
      const int64_t n = in.dim(i, d);
      if (axes >> d & 1) {
        Add(n, stride, &a->reduced, a->reduced_n, a->reduced_stride);
        a->terms *= n;
      } else {
        Add(n, stride, &a->kept, a->kept_n, a->kept_stride);
        a->results *= n;
      }
      stride *= n;
    }
    return a->results == out.size(i) ? kOk : kInternal;
  }

 private:
  // Adds an axis outside all others. If it is contiguous with the one before, the two become one.
  JAXDALI_HD static void Add(int64_t n, int64_t stride, int* axes, int64_t* extents, int64_t* strides) {
    if (n == 1) return;
    if (*axes > 0 && strides[*axes - 1] * extents[*axes - 1] == stride) {
      extents[*axes - 1] *= n;
      return;
    }
    extents[*axes] = n;
    strides[(*axes)++] = stride;
  }
};

// The CPU kernel.
Status Reduce(const ReduceBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchReduce(const ReduceBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_REDUCE_REDUCE_H_
