// Copies of what nobody reads soon.
#ifndef JAXDALI_FFI_HOST_COPY_H_
#define JAXDALI_FFI_HOST_COPY_H_

#include <cstdint>
#include <vector>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

// memcpy, past the caches: for batches larger than these, of which the first part has left them when the last one is
// there. The memory that is written then needs not be read before, which takes a third off the time.
void CopyPast(uint8_t* to, const uint8_t* from, int64_t n);

// Bytes to be copied.
struct Copied {
  const uint8_t* from;
  int64_t size;
  uint8_t* to;
};

// Copies in the pool's threads, past the caches where it is much.
void CopyAll(const std::vector<Copied>& pieces, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_COPY_H_
