// Samples copied as they are into an output that holds others already: what the branches of an `if` made becomes one
// batch, one call for each branch, of which each sample is in one.
#ifndef JAXDALI_FFI_MERGE_H_
#define JAXDALI_FFI_MERGE_H_

#include <cstring>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// A batch, as the custom call gets it.
struct MergeBatch {
  Batch in, out;  // of one type and rank

  JAXDALI_HD Status Check(int i) const {
    for (int d = 0; d < out.ndim; d++)
      if (in.dim(i, d) != out.dim(i, d)) return kSizeMismatch;
    return kOk;
  }
};

// The CUDA kernel; null or what went wrong.
const char* LaunchMerge(const MergeBatch& batch, const Samples& samples, void* stream);

// The CPU kernel.
inline Status Merge(const MergeBatch& b, int i) {
  if (Status s = b.Check(i); s != kOk) return s;
  const int64_t bytes = b.out.size(i) * SizeOf(b.out.dtype);
  if (bytes > 0) std::memcpy(b.out.bytes(i), b.in.bytes(i), static_cast<size_t>(bytes));
  return kOk;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_MERGE_H_
