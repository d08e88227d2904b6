// The heap of the checked programs: a replacement of operator new with a map of allocated bytes.
#include "ffi/fuzz/ptx/memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace jaxdali::ptx {

Heap heap{};

namespace {

// Blocks of a few sizes, each with a list of free ones. A header of two units stands before each. Neither the header
// nor the bytes after the requested size count as allocated, so that accesses there are found.
class Allocator {
 public:
  // A block of at least `size` bytes; null if there is no memory left.
  void* New(size_t size) {
    const std::lock_guard lock(mutex_);
    if (!heap.begin) Reserve();
    const int list = ListOf(size);
    uint8_t* block = free_[list];
    if (block) {  // a free block begins with the address of the next one in its list
      std::memcpy(&free_[list], block, sizeof(uint8_t*));
    } else {
      if (SizeOf(list) + kHeader > static_cast<size_t>(heap.begin + Heap::kBytes - end_)) return nullptr;
      block = end_ + kHeader;
      end_ = block + SizeOf(list);
    }
    const Header header{size, list};
    std::memcpy(block - kHeader, &header, sizeof header);
    std::memset(heap.allocated + (block - heap.begin), 1, size);
    return block;
  }

  // Puts a block into the list of free ones. Its bytes no longer count as allocated.
  void Delete(void* pointer) {
    if (!pointer) return;
    const std::lock_guard lock(mutex_);
    auto* block = static_cast<uint8_t*>(pointer);
    Header header;
    std::memcpy(&header, block - kHeader, sizeof header);
    std::memset(heap.allocated + (block - heap.begin), 0, header.size);
    std::memcpy(block, &free_[header.list], sizeof(uint8_t*));
    free_[header.list] = block;
  }

 private:
  static constexpr size_t kHeader = 2 * Heap::kUnit;
  struct Header {
    size_t size;
    int list;
  };

  // Sizes 16, 20, 24, 28, 32, 40, ... units: at most a quarter is lost. The first lists have 1, 2, ... 15 units.
  static int ListOf(size_t size) {
    const size_t units = size / Heap::kUnit + 1;
    if (units < 16) return static_cast<int>(units);
    int list = 4 * (std::bit_width(units) - 1);
    while (SizeOf(list) < units * Heap::kUnit) list++;
    return list;
  }
  // Bytes of a list's blocks: from list 16 on, four lists for each power of two.
  static size_t SizeOf(int list) {
    if (list < 16) return static_cast<size_t>(list) * Heap::kUnit;
    return (Heap::kUnit << list / 4) + (Heap::kUnit << list / 4) / 4 * static_cast<size_t>(list % 4);
  }

  // Reserves addresses for the heap, the map of allocated bytes, and the history of each byte.
  void Reserve() {
    const auto reserve = [](size_t bytes) {  // pages come with the first access
      void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (region == MAP_FAILED) {
        std::perror("ptx: reserving memory");
        std::abort();
      }
      return region;
    };
    heap.begin = static_cast<uint8_t*>(reserve(Heap::kBytes));
    const char* offset = std::getenv("JAXDALI_PTX_OFFSET");  // where all blocks begin, modulo the alignment
    end_ = heap.begin + (offset ? std::atoi(offset) : 0);
    heap.allocated = static_cast<uint8_t*>(reserve(Heap::kBytes));
    heap.history = static_cast<ByteHistory*>(reserve(Heap::kBytes * sizeof(ByteHistory)));
  }

  std::mutex mutex_;
  uint8_t* end_ = nullptr;  // of all blocks so far
  uint8_t* free_[128] = {};
};

constinit Allocator allocator;  // before all that allocates

}  // namespace
}  // namespace jaxdali::ptx

void* operator new(size_t size) {
  if (void* p = jaxdali::ptx::allocator.New(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { jaxdali::ptx::allocator.Delete(p); }
void operator delete(void* p, size_t) noexcept { jaxdali::ptx::allocator.Delete(p); }
