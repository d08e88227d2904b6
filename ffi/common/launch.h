// How CUDA kernels run. A kernel is a struct, passed by value:
//
//   struct Kernel {
//     struct Shared;                                                       // of a block; without constructors
//     template <class Block>
//     JAXDALI_HD void operator()(const Block& block, Shared& shared) const;
//   };
//
// `block.index` says which block it is. `block.Phase(f)` calls f(thread) for each of the kThreads threads, with a
// barrier after it. Between phases nothing of a thread lives on but what is in `shared` or in device memory, and
// control flow depends on the kernel's members and on `shared` alone, so that all threads take it alike.
//
// Shapes, places and parameters of samples are in device memory, so the host does not know them: a launch depends on
// the number of samples and the capacities alone, and a block finds its work itself.
//
// Included by the .cu files only. Compiled as C++ (the tests' module `_emulated`) the same blocks and threads run in a
// loop on the host, in random order, with garbage in shared memory. With JAXDALI_REAL_THREADS (tests under
// ThreadSanitizer) each thread of a block is a thread of the host, and neighbouring blocks run at once.
#ifndef JAXDALI_FFI_COMMON_LAUNCH_H_
#define JAXDALI_FFI_COMMON_LAUNCH_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

#if !defined(__CUDACC__)
#include <memory>
#include <numeric>
#include <random>
#include <vector>
#endif
#if defined(JAXDALI_REAL_THREADS)
#include "ffi/common/real_threads.h"
#endif

namespace jaxdali {

inline constexpr int kThreads = 256;

// Divides by a 32-bit number where the numbers fit: 64-bit division is many instructions on a GPU.
struct Quotient {
  int64_t quotient, rest;
};
JAXDALI_NOINLINE JAXDALI_HD inline Quotient DivideLong(int64_t a, int64_t b) { return {a / b, a % b}; }
JAXDALI_HD inline Quotient Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    uint32_t q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {q, static_cast<uint32_t>(a) - q * static_cast<uint32_t>(b)};
  }
  return DivideLong(a, b);
}

#if defined(__CUDACC__)

struct DeviceBlock {
  int index;

  template <class F>
  __device__ __forceinline__ void Phase(F f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};

// Blocks that shall run at a time on one multiprocessor: `Kernel::kBlocksPerSm`, if there is one. It limits registers.
template <class Kernel, class = void>
struct BlocksPerSm {
  static constexpr int value = 1;
};
template <class Kernel>
struct BlocksPerSm<Kernel, std::void_t<decltype(Kernel::kBlocksPerSm)>> {
  static constexpr int value = Kernel::kBlocksPerSm;
};

template <class Kernel>
__global__ void __launch_bounds__(kThreads, BlocksPerSm<Kernel>::value) Run(const __grid_constant__ Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  kernel(DeviceBlock{static_cast<int>(blockIdx.x)}, shared);
}

// `what` with the kernel's type before it; until the thread's next error.
template <class Kernel>
const char* LaunchError(const char* what) {
  static thread_local char text[512];
  const char* kernel = std::strstr(__PRETTY_FUNCTION__, "Kernel = ");  // in [with Kernel = ...]
  std::snprintf(text, sizeof text, "[%s: %s", kernel ? kernel : "", what);
  return text;
}

// Null, or what went wrong.
template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void* stream) {
  if (blocks <= 0) return nullptr;
  if (blocks > 0x7FFFFFFF) return LaunchError<Kernel>("too many blocks for one launch");
  Run<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(kernel);
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : LaunchError<Kernel>(cudaGetErrorString(error));
}

#elif defined(JAXDALI_REAL_THREADS)

template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void*) {
  RunOnThreads<kThreads>(kernel, blocks);
  return nullptr;
}

#else

struct HostBlock {
  int index;
  std::minstd_rand* random;

  template <class F>
  void Phase(F f) const {  // an odd step visits every thread once, in an order that is not theirs
    static_assert((kThreads & (kThreads - 1)) == 0);
    const unsigned start = (*random)(), step = (*random)() | 1;
    for (unsigned t = 0; t < kThreads; t++) f(static_cast<int>((start + t * step) & (kThreads - 1)));
  }
};

template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void*) {
  std::minstd_rand random(static_cast<unsigned>(blocks));
  std::vector<int> order(static_cast<size_t>(std::max<int64_t>(blocks, 0)));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  auto shared = std::make_unique<typename Kernel::Shared>();
  for (int b : order) {
    std::memset(static_cast<void*>(shared.get()), static_cast<int>(random() & 255), sizeof *shared);
    kernel(HostBlock{b, &random}, *shared);
  }
  return nullptr;
}

#endif

// A kernel that works on each sample of a batch on its own:
//
//   struct Kernel {
//     Batch in, out;
//     struct Shared;                                                           // of a block; without constructors
//     JAXDALI_HD Status Prepare(int i, Shared*) const;                         // one thread: sample i's parameters
//     JAXDALI_HD void Share(int thread, Shared*) const;                        // all threads: what else is shared
//     JAXDALI_HD void Work(const Shared&, int64_t first, int64_t step) const;  // units first, first + step, ...
//   };
//
// Prepare and Share write different members; there is a barrier between them and Work.
template <class Kernel>
struct SampleKernel {
  Kernel kernel;
  Samples samples;
  int chunks;  // blocks for each sample

  struct Shared {
    bool runs;
    typename Kernel::Shared own;
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& shared) const {
    const int i = block.index / chunks, chunk = block.index % chunks;
    block.Phase([&](int thread) {
      if (thread == 0) {
        Status code = kOk;
        shared.runs = false;
        if (samples.present[i]) {
          code = kernel.in.valid(i) && kernel.out.valid(i) ? kernel.Prepare(i, &shared.own) : kInternal;
          shared.runs = code == kOk;
        }
        if (chunk == 0) samples.status[i] = code;
      }
      kernel.Share(thread, &shared.own);
    });
    block.Phase([&](int thread) {
      if (shared.runs)
        kernel.Work(shared.own, static_cast<int64_t>(chunk) * kThreads + thread,
                    static_cast<int64_t>(chunks) * kThreads);
    });
  }
};

template <class Kernel>
const char* Launch(const Kernel& kernel, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  constexpr int64_t kPerThread = 4, kMost = 2048;  // elements; a larger sample's threads do more
  const Batch& out = kernel.out;
  const int chunks = static_cast<int>(std::clamp<int64_t>(out.capacity / out.n / (kThreads * kPerThread), 1, kMost));
  return LaunchBlocks(SampleKernel<Kernel>{kernel, samples, chunks}, int64_t{samples.n} * chunks, stream);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_LAUNCH_H_
