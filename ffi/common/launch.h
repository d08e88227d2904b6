// How CUDA kernels run over a batch. A kernel is a struct, passed by value:
//
//   struct Kernel {
//     Batch in, out;
//     struct Shared;                                                           // of a block; without constructors
//     JAXDALI_HD Status Prepare(int i, Shared*) const;                         // one thread: sample i's parameters
//     JAXDALI_HD void Share(int thread, Shared*) const;                        // all threads: what else is shared
//     JAXDALI_HD void Work(const Shared&, int64_t first, int64_t step) const;  // units first, first + step, ...
//   };
//
// There is a barrier between Prepare and Share, which write different members, and Work; none elsewhere. Shapes, places
// and parameters of samples are in device memory, so the host does not know them: a launch depends on the number of
// samples and the capacity of the output alone, and a block finds its sample's work itself.
//
// Included by the .cu files only. Compiled as C++ (the tests' module `_emulated`) the same blocks and threads run in a
// loop on the host, in random order, with garbage in shared memory.
#ifndef JAXDALI_FFI_COMMON_LAUNCH_H_
#define JAXDALI_FFI_COMMON_LAUNCH_H_

#include <algorithm>
#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

#if !defined(__CUDACC__)
#include <cstring>
#include <numeric>
#include <random>
#include <vector>
#endif

namespace jaxdali {

inline constexpr int kThreads = 256;

// Blocks for each sample.
inline int ChunksFor(const Batch& out) {
  constexpr int64_t kPerThread = 4, kMost = 2048;  // elements; a larger sample's threads do more
  return static_cast<int>(std::clamp<int64_t>(out.capacity / out.n / (kThreads * kPerThread), 1, kMost));
}

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

template <class Kernel>
struct Block {
  bool runs;
  typename Kernel::Shared shared;
};

// Before the barrier.
template <class Kernel>
JAXDALI_HD inline void Begin(const Kernel& kernel, const Samples& samples, int i, int chunk, int thread,
                             Block<Kernel>* block) {
  if (thread == 0) {
    Status code = kOk;
    block->runs = false;
    if (samples.present[i]) {
      code = kernel.in.valid(i) && kernel.out.valid(i) ? kernel.Prepare(i, &block->shared) : kInternal;
      block->runs = code == kOk;
    }
    if (chunk == 0) samples.status[i] = code;
  }
  kernel.Share(thread, &block->shared);
}

// After it.
template <class Kernel>
JAXDALI_HD inline void Finish(const Kernel& kernel, int chunk, int chunks, int thread, const Block<Kernel>& block) {
  if (block.runs)
    kernel.Work(block.shared, static_cast<int64_t>(chunk) * kThreads + thread, static_cast<int64_t>(chunks) * kThreads);
}

#if defined(__CUDACC__)

template <class Kernel>
__global__ void __launch_bounds__(kThreads) Run(const __grid_constant__ Kernel kernel, const Samples samples) {
  __shared__ Block<Kernel> block;
  const int chunk = static_cast<int>(blockIdx.x), chunks = static_cast<int>(gridDim.x);
  for (int i = static_cast<int>(blockIdx.y); i < samples.n; i += static_cast<int>(gridDim.y)) {
    Begin(kernel, samples, i, chunk, static_cast<int>(threadIdx.x), &block);
    __syncthreads();
    Finish(kernel, chunk, chunks, static_cast<int>(threadIdx.x), block);
    __syncthreads();  // the next sample's Begin
  }
}

template <class Kernel>
const char* Launch(const Kernel& kernel, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  const dim3 grid(static_cast<unsigned>(ChunksFor(kernel.out)), static_cast<unsigned>(std::min(samples.n, 65535)));
  Run<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(kernel, samples);
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#else

template <class Kernel>
const char* Launch(const Kernel& kernel, const Samples& samples, void*) {
  if (samples.n == 0) return nullptr;
  const int chunks = ChunksFor(kernel.out);
  std::mt19937 random(static_cast<unsigned>(samples.n));
  std::vector<int> blocks(static_cast<size_t>(samples.n) * chunks), threads(kThreads);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::iota(threads.begin(), threads.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  Block<Kernel> block;
  for (int b : blocks) {
    std::memset(static_cast<void*>(&block), static_cast<int>(random() & 255), sizeof block);
    std::shuffle(threads.begin(), threads.end(), random);
    for (int t : threads) Begin(kernel, samples, b / chunks, b % chunks, t, &block);
    std::shuffle(threads.begin(), threads.end(), random);
    for (int t : threads) Finish(kernel, b % chunks, chunks, t, block);
  }
  return nullptr;
}

#endif

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_LAUNCH_H_
