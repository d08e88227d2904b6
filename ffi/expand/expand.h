// NumPy broadcasting of one sample to a larger shape, for operands of arithmetic between ragged batches.
#ifndef JAXDALI_FFI_EXPAND_EXPAND_H_
#define JAXDALI_FFI_EXPAND_EXPAND_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

struct ExpandArgs {
  const uint8_t* in;
  uint8_t* out;
  int ndim;          // axes of the output
  int64_t element;   // size in bytes
  int64_t dims[8];   // shape of the input, aligned right, with 1 where it has no axis
  int64_t shape[8];  // shape of the output
};

// The operands of the custom call.
struct ExpandBatch {
  Batch in, out;  // of equal type; the input has no more axes than the output

  // Describes sample i. The caller has checked that it lies inside both buffers. kSizeMismatch: an axis of the input is
  // neither 1 nor as long as the output's.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, ExpandArgs* a) const {
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->ndim = out.ndim;
    a->element = SizeOf(out.dtype);
    const int missing = out.ndim - in.ndim;
    for (int d = 0; d < out.ndim; d++) {
      a->dims[d] = d < missing ? 1 : in.dim(i, d - missing);
      a->shape[d] = out.dim(i, d);
      if (a->dims[d] != a->shape[d] && a->dims[d] != 1) return kSizeMismatch;
    }
    return kOk;
  }
};

// The CUDA kernel. Returns null or an error message.
const char* LaunchExpand(const ExpandBatch& batch, const Samples& samples, void* stream);

// Repeats the first `block` bytes until there are n blocks. Each copy doubles what exists.
inline void Repeat(uint8_t* out, int64_t block, int64_t n) {
  for (int64_t done = 1; done < n; done *= 2) std::memcpy(out + done * block, out, std::min(done, n - done) * block);
}

// Writes the sub-array of axes d, d + 1, ..., whose input starts at `in`. `block`: bytes of the axes behind the last
// one of `a`, which are equal in input and output. `out_stride`: bytes of the output from one index of an axis to the
// next. Returns how many bytes of input it used.
inline int64_t ExpandAxis(const ExpandArgs& a, int d, int64_t block, const int64_t* out_stride, const uint8_t* in,
                          uint8_t* out) {
  if (d == a.ndim) {
    std::memcpy(out, in, block);
    return block;
  }
  int64_t used = 0;
  if (a.dims[d] == a.shape[d]) {
    for (int64_t i = 0; i < a.shape[d]; i++)
      used += ExpandAxis(a, d + 1, block, out_stride, in + used, out + i * out_stride[d]);
  } else {
    used = ExpandAxis(a, d + 1, block, out_stride, in, out);
    Repeat(out, out_stride[d], a.shape[d]);
  }
  return used;
}

// Repeats each of n elements of type T k times, for example a mask [H, W, 1] for an image [H, W, k]. This case is
// common, so it has a loop of its own.
template <class T>
inline void ExpandLast(const uint8_t* in, int64_t n, int64_t k, uint8_t* out) {
  for (int64_t i = 0; i < n; i++) {
    T v;
    std::memcpy(&v, in + i * sizeof(T), sizeof(T));
    for (int64_t j = 0; j < k; j++) std::memcpy(out + (i * k + j) * sizeof(T), &v, sizeof(T));
  }
}

// Expands a sample. Repeating along the last axis alone has a loop of its own.
inline void ExpandSample(ExpandArgs a) {
  int64_t total = 1, size = 1;
  for (int d = 0; d < a.ndim; d++) {
    total *= a.shape[d];
    size *= a.dims[d];
  }
  if (total == 0) return;
  if (a.ndim > 0 && a.dims[a.ndim - 1] == 1 && size * a.shape[a.ndim - 1] == total) {
    int64_t k = a.shape[a.ndim - 1];
    switch (a.element) {
      case 1:
        ExpandLast<uint8_t>(a.in, size, k, a.out);
        return;
      case 2:
        ExpandLast<uint16_t>(a.in, size, k, a.out);
        return;
      case 4:
        ExpandLast<uint32_t>(a.in, size, k, a.out);
        return;
      case 8:
        ExpandLast<uint64_t>(a.in, size, k, a.out);
        return;
    }
  }
  int64_t stride[8], block = a.element;
  int64_t bytes = a.element;
  for (int d = a.ndim - 1; d >= 0; d--) {
    stride[d] = bytes;
    bytes *= a.shape[d];
  }
  // Inner axes that are equal in input and output form one block, and `a` loses them.
  while (a.ndim > 0 && a.dims[a.ndim - 1] == a.shape[a.ndim - 1]) block *= a.shape[--a.ndim];
  ExpandAxis(a, /*d=*/0, block, stride, a.in, a.out);
}

// The CPU kernel.
inline Status Expand(const ExpandBatch& batch, int i) {
  ExpandArgs a;
  const Status s = batch.Sample(i, &a);
  if (s == kOk) ExpandSample(a);
  return s;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_EXPAND_EXPAND_H_
