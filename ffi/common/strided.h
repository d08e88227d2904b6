// Where the elements of a packed array come from in another one: per axis a count and a distance.
#ifndef JAXDALI_FFI_COMMON_STRIDED_H_
#define JAXDALI_FFI_COMMON_STRIDED_H_

#include "ffi/common/launch.h"

namespace jaxdali {

struct Strided {
  int ndim;
  int64_t size;   // elements
  int64_t start;  // of element 0
  int64_t extent[8], stride[8];

  JAXDALI_HD void Clear() {
    ndim = 0;
    size = 1;
    start = 0;
  }
  // One more axis, inside all others. Axes that are one in memory become one here: fewer divisions.
  JAXDALI_HD void Add(int64_t n, int64_t distance) {
    size *= n;
    if (n == 1) return;
    if (ndim > 0 && stride[ndim - 1] == n * distance) {
      extent[ndim - 1] *= n;
      stride[ndim - 1] = distance;
      return;
    }
    extent[ndim] = n;
    stride[ndim++] = distance;
  }
  JAXDALI_HD int64_t At(int64_t i) const {
    int64_t at = start;
    for (int d = ndim - 1; d > 0; d--) {
      const Quotient q = Divide(i, extent[d]);
      at += q.rest * stride[d];
      i = q.quotient;
    }
    return ndim > 0 ? at + i * stride[0] : at;
  }
};

// A kernel that copies elements of type T, one thread each: Sources has `in`, `out` and Plan(i, Strided*).
template <class Sources, class T>
struct StridedKernel : Sources {
  struct Shared {
    Strided from;
    const T* in;
    T* out;
  };

  JAXDALI_HD Status Prepare(int i, Shared* s) const {
    s->in = this->in.template sample<const T>(i);
    s->out = this->out.template sample<T>(i);
    return this->Plan(i, &s->from);
  }
  JAXDALI_HD void Share(int, Shared*) const {}
  JAXDALI_HD void Work(const Shared& s, int64_t first, int64_t step) const {
    for (int64_t i = first; i < s.from.size; i += step) s.out[i] = s.in[s.from.At(i)];
  }
};

template <class Sources>
const char* LaunchStrided(const Sources& sources, const Samples& samples, void* stream) {
  switch (SizeOf(sources.in.dtype)) {
    case 1:
      return Launch(StridedKernel<Sources, uint8_t>{sources}, samples, stream);
    case 2:
      return Launch(StridedKernel<Sources, uint16_t>{sources}, samples, stream);
    case 4:
      return Launch(StridedKernel<Sources, uint32_t>{sources}, samples, stream);
    default:
      return Launch(StridedKernel<Sources, uint64_t>{sources}, samples, stream);
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_STRIDED_H_
