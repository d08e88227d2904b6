// Reductions of the window around each element over two or three neighbouring axes: weighted sums (convolution),
// medians, maxima and minima.
#ifndef JAXDALI_FFI_STENCIL_STENCIL_H_
#define JAXDALI_FFI_STENCIL_STENCIL_H_

#include <cmath>

#include "ffi/common/batch.h"
#include "ffi/common/border.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int32_t kMostWindow = 1 << 12;  // the largest extent of a window

enum class StencilReduction : int32_t { kSum, kMedian, kMax, kMin, kCount };

// One sample, [outer, n[0], n[1], n[2], inner]; with two axes n[0] is 1.
struct StencilArgs {
  const void* in;
  void* out;
  int64_t outer, inner, n[3], out_n[3];
  int64_t window[3], anchor[3];  // element i of the output reduces the window that begins at i - anchor
  const float* weights;
  float fill;

  JAXDALI_HD int64_t Taps() const { return window[0] * window[1] * window[2]; }
  JAXDALI_HD int64_t Size() const { return outer * out_n[0] * out_n[1] * out_n[2] * inner; }
  // Whether CUDA kernels can work by tiles: windows have two axes and are near their elements, and 32 bits are enough.
  JAXDALI_HD bool HasTiles() const {
    const int64_t in_size = outer * n[0] * n[1] * n[2] * inner;
    const bool is_near = anchor[1] >= 0 && anchor[1] <= window[1] && anchor[2] >= 0 && anchor[2] <= window[2];
    const bool is_small = (Size() | in_size) >> 31 == 0;
    return window[0] == 1 && anchor[0] == 0 && out_n[0] == n[0] && is_near && is_small;
  }
};

// The operands of the custom call.
struct StencilBatch {
  Batch in, out;          // of equal shape except along the filtered axes
  const float* weights;   // [n, most], for sums
  const int32_t* window;  // [n, axes]
  const int32_t* anchor;  // [n, axes]
  const float* fill;      // [n] values beyond a constant border
  int first, axes;        // the first filtered axis, and how many
  int64_t most;           // weights of a sample, as many as the largest window has
  StencilReduction reduction;
  Border border;
  JAXDALI_ATTRIBUTES(first, axes, reduction, border);

  // Describes sample i. The caller has checked that it lies inside both buffers. kInternal: its operands do not fit
  // together.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, StencilArgs* a) const {
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->outer = a->inner = 1;
    a->fill = fill[i];
    a->weights = weights + i * most;
    for (int k = 0; k < 3; k++) {
      a->n[k] = a->out_n[k] = a->window[k] = 1;
      a->anchor[k] = 0;
    }
    for (int d = 0; d < in.ndim; d++) {
      if (d >= first && d < first + axes) {
        // The filtered axes are the last ones of n[0], n[1], n[2].
        const int k = 3 - axes + d - first, column = i * axes + d - first;
        a->n[k] = in.dim(i, d);
        a->out_n[k] = out.dim(i, d);
        a->window[k] = window[column];
        a->anchor[k] = anchor[column];
        if (window[column] < 1 || window[column] > kMostWindow) return kInternal;
        if (a->n[k] == 0 && a->out_n[k] != 0) return kInternal;
        continue;
      }
      if (out.dim(i, d) != in.dim(i, d)) return kInternal;
      (d < first ? a->outer : a->inner) *= in.dim(i, d);
    }
    return reduction == StencilReduction::kSum && a->Taps() > most ? kInternal : kOk;
  }
};

// The CPU kernel.
Status RunStencil(const StencilBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchStencil(const StencilBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_STENCIL_STENCIL_H_
