#ifndef JAXDALI_FFI_JPEG_HELPERS_H_
#define JAXDALI_FFI_JPEG_HELPERS_H_

#include <cstdint>

namespace jaxdali {

class ThreadPool;

namespace jpeg {

// Of data that are worth a thread: what it gains is several times what it costs to begin in the middle.
inline constexpr int64_t kBytesPerThread = int64_t{128} << 10;

// Threads for parts of an image.
struct Helpers {
  ThreadPool* pool = nullptr;  // null: none
  int64_t least = kBytesPerThread;
};

}  // namespace jpeg
}  // namespace jaxdali

#endif  // JAXDALI_FFI_JPEG_HELPERS_H_
