// A batch of samples in a flat buffer, dense or ragged. Every kernel works on these. The file includes no XLA headers,
// so that kernels compile fast and can be linked into fuzzers and tests alone.
#ifndef JAXDALI_FFI_COMMON_BATCH_H_
#define JAXDALI_FFI_COMMON_BATCH_H_

#include <cstdint>
#include <tuple>

#include "ffi/common/hd.h"

namespace jaxdali {

// Samples start at multiples of this number of elements.
inline constexpr int64_t kAlignment = 64;

enum class DType : int32_t { kU8, kU16, kU32, kU64, kI8, kI16, kI32, kI64, kF16, kF32, kF64, kBool, kBF16 };

// Bytes of an element.
JAXDALI_HD inline constexpr int64_t SizeOf(DType t) {
  switch (t) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU32:
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

// Lists the members of a batch that are attributes of the custom call, where they have the same names. An enum comes as
// its number. A list of axes is an int[8], with kNoAxis behind the list.
#define JAXDALI_ATTRIBUTES(...)                                \
  static const char* AttributeNames() { return #__VA_ARGS__; } \
  auto Attributes() { return std::tie(__VA_ARGS__); }

inline constexpr int kNoAxis = -1;

// The form in which all kernels get their inputs and outputs. `sample(i)` and `bytes(i)` may be used only if valid(i).
struct Batch {
  DType dtype;
  void* data;
  int64_t capacity;        // elements in the whole buffer
  int n;                   // samples
  int ndim;                // axes of one sample
  const int32_t* offsets;  // [n] in units of kAlignment elements; null: dense, all samples of shape `dense`
  const int32_t* shapes;   // [n, ndim]; unused when dense
  int64_t dense[8];        // extents of each sample when dense: at most 8 axes

  // Extent of axis d of sample i.
  JAXDALI_HD int64_t dim(int i, int d) const { return offsets ? shapes[static_cast<int64_t>(i) * ndim + d] : dense[d]; }
  // Elements of sample i.
  JAXDALI_NOINLINE JAXDALI_HD int64_t size(int i) const {
    int64_t s = 1;
    JAXDALI_UNROLL_BY(1)
    for (int d = 0; d < ndim; d++) s *= dim(i, d);
    return s;
  }
  // The element of the buffer at which sample i begins.
  JAXDALI_HD int64_t start(int i) const { return offsets ? offsets[i] * kAlignment : i * size(i); }
  // Whether sample i lies inside the buffer. Kernels check this once per sample, because shapes are data.
  JAXDALI_NOINLINE JAXDALI_HD bool valid(int i) const {
    JAXDALI_UNROLL_BY(1)
    for (int d = 0; d < ndim; d++)
      if (dim(i, d) < 0) return false;
    const int64_t n = size(i), first = offsets ? offsets[i] * kAlignment : i * n;
    return first >= 0 && first + n <= capacity;
  }
  template <class T>
  JAXDALI_HD T* sample(int i) const {
    return static_cast<T*>(data) + start(i);
  }
  JAXDALI_HD uint8_t* bytes(int i) const { return static_cast<uint8_t*>(data) + start(i) * SizeOf(dtype); }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_BATCH_H_
