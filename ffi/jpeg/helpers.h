// The threads that may help with one image, for callers that need not know strips.h.
#ifndef JAXDALI_FFI_JPEG_HELPERS_H_
#define JAXDALI_FFI_JPEG_HELPERS_H_

#include <cstdint>

namespace jaxdali {

class ThreadPool;

namespace jpeg {

// The least number of bytes for each thread. With so many, a thread gains several times the cost of beginning in the
// middle of the data (strips.h).
inline constexpr int64_t kBytesPerThread = int64_t{128} << 10;

// Threads that share an image.
struct Helpers {
  ThreadPool* pool = nullptr;  // null: no helpers
  int64_t min_bytes = kBytesPerThread;
};

}  // namespace jpeg
}  // namespace jaxdali

#endif  // JAXDALI_FFI_JPEG_HELPERS_H_
