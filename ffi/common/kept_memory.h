// Memory that a thread keeps from one sample to the next.
#ifndef JAXDALI_FFI_COMMON_KEPT_MEMORY_H_
#define JAXDALI_FFI_COMMON_KEPT_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <new>

namespace jaxdali {

// It is released only if it is much more than the next sample needs: above kKept bytes and eight times as much.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() { std::free(data_); }

  // Returns memory of at least `bytes` bytes, and discards its contents. 0 releases a large block before samples that
  // need no memory.
  void* OfSize(int64_t bytes) {
    if (bytes > size_ || (size_ > kKept && bytes < size_ / 8)) {
      std::free(data_);
      // A quarter more than needed, since samples differ; multiples of a cache line.
      size_ = (bytes + bytes / 4 + 63) / 64 * 64 + 64;
      data_ = std::aligned_alloc(64, static_cast<size_t>(size_));
      if (!data_) {
        size_ = 0;
        throw std::bad_alloc();
      }
    }
    return data_;
  }

 private:
  static constexpr int64_t kKept = int64_t{16} << 20;
  void* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_KEPT_MEMORY_H_
