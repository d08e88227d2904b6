// Copies samples unchanged into an output that already holds others. The values that the branches of an `if` make
// become one batch: one call for each branch, and each sample belongs to one branch.
#ifndef JAXDALI_FFI_MERGE_MERGE_H_
#define JAXDALI_FFI_MERGE_MERGE_H_

#include <cstring>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The operands of the custom call.
struct MergeBatch {
  Batch in, out;  // of equal type and rank

  // kSizeMismatch if input and output of sample i have different shapes, otherwise kOk.
  JAXDALI_HD Status Check(int i) const {
    for (int d = 0; d < out.ndim; d++)
      if (in.dim(i, d) != out.dim(i, d)) return kSizeMismatch;
    return kOk;
  }
};

// The CUDA kernel. Returns null or an error message.
const char* LaunchMerge(const MergeBatch& batch, const Samples& samples, void* stream);

// The CPU kernel.
inline Status Merge(const MergeBatch& b, int i) {
  if (Status s = b.Check(i); s != kOk) return s;
  const int64_t bytes = b.out.size(i) * SizeOf(b.out.dtype);
  if (bytes > 0) std::memcpy(b.out.bytes(i), b.in.bytes(i), static_cast<size_t>(bytes));
  return kOk;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_MERGE_MERGE_H_
