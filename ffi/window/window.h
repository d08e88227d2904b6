// A strided window of an n-dimensional array, optionally with a permutation of the axes, padding, scale and offset by
// channel, and another element type. It implements crop, slice, flip, pad, transpose, crop_mirror_normalize and
// subscripts.
#ifndef JAXDALI_FFI_WINDOW_WINDOW_H_
#define JAXDALI_FFI_WINDOW_WINDOW_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// One sample. Axes are those of the output, outermost first.
struct WindowArgs {
  DType in_type, out_type;
  const uint8_t* in;
  uint8_t* out;
  int ndim;
  int64_t extent[8];                    // number of indices
  int64_t stride[8];                    // elements of the input from one index to the next; may be negative
  int64_t start;                        // element of the input at index 0 of all axes; may be outside
  int64_t begin[8], end[8];             // indices that lie inside the input; the others are fill
  bool inside;                          // all indices are inside the input
  int channel;                          // the axis along which fill, scale and offset vary, or -1
  int64_t first_channel, step_channel;  // the channel of its index 0, and the step to the next
  const float *fill, *scale, *offset;
  int fills, scales;  // how many; the last one is used for all further channels
  bool past_caches;   // the output is not read soon

  JAXDALI_HD int64_t Channel(int64_t index) const { return first_channel + index * step_channel; }
  // The value of a channel, of n values; channels beyond either end have the nearest one.
  JAXDALI_HD static float Pick(const float* values, int n, int64_t channel) {
    return values[channel < 0 ? 0 : channel < n ? channel : n - 1];
  }
  JAXDALI_HD float Fill(int64_t channel) const { return Pick(fill, fills, channel); }
  // Whether elements are only copied.
  JAXDALI_HD bool moves() const { return in_type == out_type && scales == 0; }
};

// The operands of the custom call.
struct WindowBatch {
  Batch in, out;
  const int32_t *start, *step, *extent;  // [n, rank of the input]: first index, step, number of indices
  const float* fill;                     // [n, fills] for indices outside; without fill they are an error
  const float *scale, *offset;           // [n, scales], or none: elements become scale * element + offset
  int fills, scales;
  int permutation[8];  // output axis to input axis; dropped axes, which have extent 1, stand anywhere
  int channel;         // one of the input's axes, or -1
  // The output is larger than a core's caches. What is written would leave them before it is read, so writes bypass
  // them.
  bool past_caches;
  JAXDALI_ATTRIBUTES(permutation, channel);

  JAXDALI_HD bool moves() const { return in.dtype == out.dtype && scales == 0; }

  // Describes sample i. The caller has checked that it lies inside both buffers. kOutOfBounds: an index lies outside
  // the input, and there is no fill. kInternal: an extent is negative, or the output has another size than the window.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, WindowArgs* a) const {
    a->in_type = in.dtype;
    a->out_type = out.dtype;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->ndim = in.ndim;
    a->fill = fill + static_cast<int64_t>(i) * fills;
    a->scale = scale + static_cast<int64_t>(i) * scales;
    a->offset = offset + static_cast<int64_t>(i) * scales;
    a->fills = fills;
    a->scales = scales;
    a->past_caches = past_caches;
    a->channel = -1;
    a->start = 0;
    a->inside = true;
    int64_t unit[8], size = 1, elements = 1;  // unit: elements of the input from one index of an axis to the next
    bool negative = false, reaches_out = false;
    for (int d = in.ndim - 1; d >= 0; d--) {
      unit[d] = elements;
      elements *= in.dim(i, d);
    }
    for (int k = 0; k < in.ndim; k++) {
      const int d = permutation[k];
      const int64_t entry = static_cast<int64_t>(i) * in.ndim + d, num_indices = extent[entry], first = start[entry],
                    step_size = step[entry];
      const int64_t dim = in.dim(i, d);
      if (num_indices < 0) negative = true;
      if (d == channel) {
        a->channel = k;
        a->first_channel = first;
        a->step_channel = step_size;
      }
      a->extent[k] = num_indices;
      a->stride[k] = step_size * unit[d];
      a->start += first * unit[d];
      size *= num_indices;
      // The indices o with 0 <= first + o * step_size < dim, which are low to high - 1. Operands have 32 bits, so
      // nothing overflows.
      int64_t low = 0, high = num_indices;
      if (step_size == 0) {
        if (first < 0 || first >= dim) high = 0;
      } else {
        const int64_t to_inside = step_size > 0 ? -first : first - dim + 1,
                      to_outside = step_size > 0 ? dim - first : first + 1,
                      width = step_size > 0 ? step_size : -step_size;
        low = to_inside > 0 ? to_inside : 0;
        high = to_outside > 0 ? to_outside : 0;
        if (width > 1) {  // divisions take long on a GPU
          low = (low + width - 1) / width;
          high = (high + width - 1) / width;
        }
      }
      low = low < num_indices ? low : num_indices;
      high = high < num_indices ? high : num_indices;
      if (low > 0 || high < num_indices) reaches_out = true;
      a->begin[k] = low;
      a->end[k] = high > low ? high : low;
    }
    if (negative) return kInternal;
    // Dropped and new axes have extent 1. So the output may have any rank, but its size is determined.
    if (size != out.size(i)) return kInternal;
    a->inside = !reaches_out || size == 0;
    return a->inside || fills > 0 ? kOk : kOutOfBounds;
  }
};

inline constexpr int kMostTileChannels = 4;  // of an image of which another CUDA kernel makes a window (window_tile.h)

// The CPU kernel.
Status Window(const WindowBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchWindow(const WindowBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WINDOW_WINDOW_H_
