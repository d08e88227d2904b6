// Copies bytes that are not read soon: values of records, and samples of a batch.
#ifndef JAXDALI_FFI_HOST_COPY_H_
#define JAXDALI_FFI_HOST_COPY_H_

#include <cstdint>
#include <vector>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

// Copies with stores that bypass the caches (x86's streaming stores, elsewhere memcpy). It is for batches larger than
// the caches, whose first part would be evicted before anybody reads it. The destination's cache lines then need not be
// read first, which takes a third off the time.
void CopyStreaming(uint8_t* to, const uint8_t* from, int64_t n);

// Bytes to be copied, and their destination.
struct ByteCopy {
  const uint8_t* from;
  int64_t size;
  uint8_t* to;
};

// Copies with the pool's threads, past the caches if there are many bytes.
void CopyBytes(const std::vector<ByteCopy>& copies, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_COPY_H_
