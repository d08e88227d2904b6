// Copies memory that is not read soon.
#ifndef JAXDALI_FFI_HOST_COPY_H_
#define JAXDALI_FFI_HOST_COPY_H_

#include <cstdint>
#include <vector>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

// memcpy past the caches, for batches larger than these, whose first part would leave the cache before it is read. The
// destination then need not be read first, which takes a third off the time.
void CopyPast(uint8_t* to, const uint8_t* from, int64_t n);

// Bytes to be copied.
struct Copied {
  const uint8_t* from;
  int64_t size;
  uint8_t* to;
};

// Copies with the pool's threads, past the caches if the pieces are large.
void CopyAll(const std::vector<Copied>& pieces, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_COPY_H_
