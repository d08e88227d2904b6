// Separable filters, such as Gaussian blur, with one window for each of up to three neighbouring axes. Beyond the
// border the data are mirrored at the centre of the outermost element (reflect-101).
#ifndef JAXDALI_FFI_FILTER_FILTER_H_
#define JAXDALI_FFI_FILTER_FILTER_H_

#include "ffi/common/batch.h"
#include "ffi/common/border.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// One sample, [outer, n[0], n[1], n[2], inner]. An axis that is not filtered has a window of one tap of weight 1.
struct FilterArgs {
  DType in_type, out_type;
  const void* in;
  void* out;
  int64_t outer, n[3], inner;
  const float* window[3];
  int taps[3];  // tap taps / 2 is the centre
};

// The operands of the custom call.
struct FilterBatch {
  Batch in, out;        // of equal shape
  const float* window;  // [n, axes, most]
  const int32_t* taps;  // [n, axes]
  int first, axes;      // the first filtered axis, and how many
  int most;             // weights of a window in memory; the first `taps` of them count
  float* scratch;       // CUDA only: two batches of floats
  int64_t scratch_size;
  JAXDALI_ATTRIBUTES(first, axes);

  // Describes sample i. The caller has checked that it lies inside both buffers. kInternal: its operands do not fit
  // together.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, FilterArgs* a) const {
    a->in_type = in.dtype;
    a->out_type = out.dtype;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->outer = a->inner = 1;
    for (int k = 0; k < 3; k++) {
      a->n[k] = a->taps[k] = 1;
      a->window[k] = nullptr;
    }
    for (int d = 0; d < in.ndim; d++) {
      const int64_t extent = in.dim(i, d);
      if (out.dim(i, d) != extent) return kInternal;
      if (d < first)
        a->outer *= extent;
      else if (d >= first + axes)
        a->inner *= extent;
    }
    for (int k = 0; k < axes; k++) {
      const int slot = 3 - axes + k;  // fewer axes are the last ones of the three
      const int64_t row = static_cast<int64_t>(i) * axes + k;
      a->n[slot] = in.dim(i, first + k);
      a->taps[slot] = taps[row];
      a->window[slot] = window + row * most;
      if (taps[row] < 1 || taps[row] > most) return kInternal;
    }
    return kOk;
  }
};

// The CPU kernel.
Status Filter(const FilterBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchFilter(const FilterBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FILTER_FILTER_H_
