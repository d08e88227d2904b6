// A strided window of an n-dimensional array, copied to packed memory: crop, slice, flip, subscripts.
#ifndef JAXDALI_FFI_WINDOW_H_
#define JAXDALI_FFI_WINDOW_H_

#include <cstdint>
#include <cstring>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

struct WindowArgs {
  const uint8_t* in;
  uint8_t* out;
  int ndim;
  int64_t element;    // bytes
  int64_t dims[8];    // of the input
  int64_t start[8];   // first index of each axis
  int64_t step[8];    // to the next; may be negative
  int64_t extent[8];  // indices taken
};

// kOutOfBounds when an index lies outside the input; then nothing is read. An empty window has no indices.
JAXDALI_HD inline Status CheckWindow(const WindowArgs& a) {
  for (int d = 0; d < a.ndim; d++)
    if (a.extent[d] <= 0) return a.extent[d] < 0 ? kInternal : kOk;
  for (int d = 0; d < a.ndim; d++) {
    int64_t last = a.start[d] + (a.extent[d] - 1) * a.step[d];  // operands are 32 bits: no overflow
    if (a.start[d] < 0 || a.start[d] >= a.dims[d] || last < 0 || last >= a.dims[d]) return kOutOfBounds;
  }
  return kOk;
}

// A batch, as the custom call gets it.
struct WindowBatch {
  Batch in, out;                         // of one type
  const int32_t *start, *step, *extent;  // [n, rank of the input]

  // Sample i, which lies inside both buffers.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, WindowArgs* a) const {
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->ndim = in.ndim;
    a->element = SizeOf(in.dtype);
    int64_t size = 1;
    for (int d = 0; d < in.ndim; d++) {
      const int64_t at = static_cast<int64_t>(i) * in.ndim + d;
      a->dims[d] = in.dim(i, d);
      a->start[d] = start[at];
      a->step[d] = step[at];
      a->extent[d] = extent[at];
      size *= a->extent[d];
    }
    // An axis that is dropped has extent 1, a new one too: the rank of the output is free, its size is not.
    if (Status s = CheckWindow(*a); s != kOk) return s;
    return size == out.size(i) ? kOk : kInternal;
  }
};

// The CUDA kernel; null or what went wrong.
const char* LaunchWindow(const WindowBatch& batch, const Samples& samples, void* stream);

template <class T>
inline void CopyStrided(const uint8_t* in, int64_t step, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; i++) std::memcpy(out + i * sizeof(T), in + i * step, sizeof(T));
}

// n blocks of `block` bytes, `step` bytes apart.
inline void CopyBlocks(const uint8_t* in, int64_t step, int64_t n, int64_t block, uint8_t* out) {
  if (step == block) {
    std::memcpy(out, in, n * block);
    return;
  }
  switch (block) {
    case 1:
      return CopyStrided<uint8_t>(in, step, n, out);
    case 2:
      return CopyStrided<uint16_t>(in, step, n, out);
    case 3:
      return CopyStrided<uint8_t[3]>(in, step, n, out);
    case 4:
      return CopyStrided<uint32_t>(in, step, n, out);
    case 8:
      return CopyStrided<uint64_t>(in, step, n, out);
    default:
      for (int64_t i = 0; i < n; i++) std::memcpy(out + i * block, in + i * step, block);
  }
}

// The CPU kernel, for a window that CheckWindow finds good.
inline void CopyWindow(const WindowArgs& a) {
  int64_t stride[8], axes = a.ndim, block = a.element;  // bytes from index to index of the input
  int64_t total = 1;
  const uint8_t* in = a.in;
  for (int d = a.ndim - 1; d >= 0; d--) {
    stride[d] = d == a.ndim - 1 ? a.element : stride[d + 1] * a.dims[d + 1];
    total *= a.extent[d];
  }
  if (total == 0) return;
  for (int d = 0; d < a.ndim; d++) in += a.start[d] * stride[d];
  // Inner axes whose indices are neighbours in memory become one block.
  while (axes > 0 && (a.extent[axes - 1] == 1 || a.step[axes - 1] * stride[axes - 1] == block))
    block *= a.extent[--axes];
  if (axes == 0) {
    std::memcpy(a.out, in, block);
    return;
  }
  const int last = static_cast<int>(axes) - 1;
  int64_t index[8] = {};
  uint8_t* out = a.out;
  for (;;) {
    CopyBlocks(in, a.step[last] * stride[last], a.extent[last], block, out);
    out += a.extent[last] * block;
    int d = last - 1;
    for (; d >= 0; d--) {
      in += a.step[d] * stride[d];
      if (++index[d] < a.extent[d]) break;
      in -= a.extent[d] * a.step[d] * stride[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WINDOW_H_
