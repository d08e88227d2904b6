#ifndef JAXDALI_FFI_JPEG_HELPERS_H_
#define JAXDALI_FFI_JPEG_HELPERS_H_

#include <cstdint>

namespace jaxdali {

class ThreadPool;

namespace jpeg {

// The least number of bytes for each thread: what the thread gains is several times the cost of beginning in the
// middle.
inline constexpr int64_t kBytesPerThread = int64_t{128} << 10;

// Threads that share an image.
struct Helpers {
  ThreadPool* pool = nullptr;  // null: no helpers
  int64_t least = kBytesPerThread;
};

}  // namespace jpeg
}  // namespace jaxdali

#endif  // JAXDALI_FFI_JPEG_HELPERS_H_
