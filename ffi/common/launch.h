// The framework of all CUDA kernels. It has three parts:
//
//   1. ScanBlock, Quotient and Divisor: prefix sums of a block, and division by 32-bit arithmetic.
//   2. LaunchBlocks(kernel, blocks, stream): starts a kernel, in a version for each way to run it (below).
//   3. LaunchPlanned and Launch: kernels that work on each sample of a batch separately. Nearly all do: read the second
//      half of this file to understand an x.cu.
//
// A kernel is a struct, passed by value:
//
//   struct Kernel {
//     struct Shared;                                                       // shared memory of a block; no constructors
//     template <class Block>
//     JAXDALI_HD void operator()(const Block& block, Shared& shared) const;
//   };
//
// `block.index` is the number of the block. `block.Phase(f)` calls f(thread) for each of the kThreads threads, with a
// barrier after it. Only `shared` and device memory keep values from one phase to the next. Control flow depends on the
// kernel's members and on `shared` alone, so that all threads take the same path.
//
// Shapes, offsets and parameters of samples are in device memory, which the host does not read. So a launch depends
// only on the number of samples and the capacities, and each block finds its own work.
//
// Only .cu files, and headers for them, include this file. It is compiled in four ways:
//
//   nvcc (__CUDACC__)          blocks and threads of a GPU. Functions marked JAXDALI_HD have a host version, too;
//                              __CUDA_ARCH__ marks the code that only the device runs.
//   C++ (module `_emulated`)   blocks and threads are loops on the host, in random order, and shared memory starts with
//                              garbage.
//   JAXDALI_REAL_THREADS       each thread of a block is a thread of the host, and neighbouring blocks run at the same
//                              time, for ThreadSanitizer (real_threads.h).
//   JAXDALI_PTX                the host interprets the code that nvcc makes of the kernels (ffi/fuzz/ptx).
#ifndef JAXDALI_FFI_COMMON_LAUNCH_H_
#define JAXDALI_FFI_COMMON_LAUNCH_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/kernel_list.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

#if defined(__CUDACC__)
#include <thread>
#else
#include <memory>
#include <numeric>
#include <random>
#include <vector>
#endif
#if defined(JAXDALI_REAL_THREADS)
#include "ffi/common/real_threads.h"
#elif defined(JAXDALI_PTX)
#include <typeinfo>

#include JAXDALI_PTX  // the header of the launches
#endif

namespace jaxdali {

inline constexpr int kThreads = 256;

// The inclusive scan of a row with an associative operation, for which V{} is neutral on the left. On a GPU: first
// within each warp, by shuffles; then each thread adds the totals of the warps before its own. Only here threads of a
// warp exchange values without a barrier. The emulation uses another implementation, which runs in one thread.
template <class V, class Block, class Op>
JAXDALI_HD void ScanBlock([[maybe_unused]] const Block& block, V (&row)[kThreads], Op op) {
#if defined(__CUDA_ARCH__)
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 31;
  V sum = row[thread];
  for (int d = 1; d < 32; d <<= 1) {
    const V below = __shfl_up_sync(0xFFFFFFFFu, sum, d);
    if (lane >= d) sum = op(below, sum);
  }
  if (lane == 31) row[thread] = sum;  // the total of the warp; the rest is still in registers
  __syncthreads();
  V preceding{};  // the total of all warps before this one
  for (int w = 31; w < thread - lane; w += 32) preceding = op(preceding, row[w]);
  __syncthreads();
  row[thread] = op(preceding, sum);
  __syncthreads();
#else
  block.Phase([&](int thread) {
    for (int i = 1; thread == 0 && i < kThreads; i++) row[i] = op(row[i - 1], row[i]);
  });
#endif
}

// Divides by a 32-bit number if the numbers fit: a 64-bit division takes many instructions on a GPU.
struct Quotient {
  int64_t quotient, rest;
};
JAXDALI_NOINLINE JAXDALI_HD inline Quotient DivideLong(int64_t a, int64_t b) { return {a / b, a % b}; }
// a / b and a % b.
JAXDALI_HD inline Quotient Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    uint32_t q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {q, static_cast<uint32_t>(a) - q * static_cast<uint32_t>(b)};
  }
  return DivideLong(a, b);
}

// A divisor of many numbers. Those of 31 bits are divided by a multiplication (Granlund and Montgomery, 1994): the
// quotient a / n is a * multiplier >> shift, where 2^(shift - 31) >= n, and multiplier is the next integer above
// 2^shift / n.
class Divisor {
 public:
  Divisor() = default;
  // Finds the multiplier and the shift for n, if it has 31 bits.
  JAXDALI_HD explicit Divisor(int64_t n) : n_(n), multiplier_(0), shift_(31) {
    if (n < 1 || n >> 31 != 0) return;  // the quotient is 0
#if defined(__CUDA_ARCH__)
    shift_ += 32 - __clz(static_cast<int>(n) - 1);
    // 2^shift_ / n in double, which is one too large at most, takes fewer instructions than a 64-bit division.
    uint64_t quotient = static_cast<uint64_t>(static_cast<double>(uint64_t{1} << shift_) / static_cast<double>(n));
    if (quotient * static_cast<uint64_t>(n) > uint64_t{1} << shift_) quotient--;
#else
    while (int64_t{1} << (shift_ - 31) < n) shift_++;
    const uint64_t quotient = (uint64_t{1} << shift_) / static_cast<uint64_t>(n);
#endif
    multiplier_ = static_cast<uint32_t>(quotient + 1);
  }
  JAXDALI_HD int64_t n() const { return n_; }
  struct Result32 {
    uint32_t quotient, rest;
  };
  JAXDALI_HD Result32 Divide(uint32_t a) const {  // a < 2^31
    const uint32_t q = static_cast<uint32_t>(static_cast<uint64_t>(a) * multiplier_ >> shift_);
    return {q, a - q * static_cast<uint32_t>(n_)};
  }
  struct Result {
    uint64_t quotient, rest;
  };
  // The quotient and the rest of any number below 2^63.
  JAXDALI_HD Result Divide(uint64_t a) const {
    if (a >> 31 == 0) {
      const Result32 r = Divide(static_cast<uint32_t>(a));
      return {r.quotient, r.rest};
    }
    const Quotient q = DivideLong(static_cast<int64_t>(a), n_);
    return {static_cast<uint64_t>(q.quotient), static_cast<uint64_t>(q.rest)};
  }

 private:
  int64_t n_;
  uint32_t multiplier_;  // see the class; 0: all quotients of numbers below 2^31 are 0
  int32_t shift_;
};

template <class Kernel>
const void* FunctionOf();  // the CUDA function; null in the emulation

// The kernel's entry in the list. It is created when the library is loaded, because LaunchBlocks refers to it.
template <class Kernel>
inline ListedKernel& kListed = ListKernel(NameOfKernel<Kernel>(), FunctionOf<Kernel>());

#if defined(__CUDACC__)

struct DeviceBlock {
  int index;

  template <class F>
  __device__ __forceinline__ void Phase(F f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};

// The number of blocks that should run at a time on one multiprocessor: `Kernel::kBlocksPerSm`, or 1. The compiler
// limits a kernel's registers accordingly.
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

// `message` with the kernel's type before it. The text is valid until the thread's next error.
inline const char* LaunchError(const char* kernel, const char* message) {
  static thread_local char text[512];
  std::snprintf(text, sizeof text, "%s: %s", kernel, message);
  return text;
}

// Loads all kernels of this library into a GPU. Kernels are usually loaded lazily, and then the first launch of each
// waits for everything that runs there. NCCL's kernels wait for other GPUs, so beside them the launch would never
// return. Returns null or an error message.
extern "C" __attribute__((weak, visibility("default"))) const char* jaxdali_load_kernels(int device) {
  static thread_local std::string problem;
  problem.clear();
  std::thread([&problem = problem, device] {  // in a thread of its own, since it sets the current device of its thread
    cudaError_t error = cudaSetDevice(device);
    const ListedKernel* last = nullptr;
    for (const ListedKernel& kernel : ListedKernels()) {
      if (error != cudaSuccess) break;
      last = &kernel;
      cudaFuncAttributes attributes;
      error = cudaFuncGetAttributes(&attributes, kernel.function);
    }
    if (error != cudaSuccess) problem = (last ? last->name : "cudaSetDevice") + ": " + cudaGetErrorString(error);
  })
      .join();
  return problem.empty() ? nullptr : problem.c_str();
}

template <class Kernel>
const void* FunctionOf() {
  return reinterpret_cast<const void*>(&Run<Kernel>);
}

// The number of blocks of a kernel that the current GPU runs at a time; 1024 if CUDA does not tell.
template <class Kernel>
int64_t BlocksAtOnce() {
  int device = 0, per_processor = 0, processors = 0;
  const bool is_known = cudaGetDevice(&device) == cudaSuccess &&
                        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
                        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, Run<Kernel>, kThreads,
                                                                      /*dynamicSMemSize=*/0) == cudaSuccess;
  if (!is_known) cudaGetLastError();  // clears the error, which no one else should report
  return is_known && per_processor > 0 ? int64_t{per_processor} * processors : 1024;
}

// Starts a kernel with a number of blocks. Returns null or an error message.
template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void* stream) {
  if (blocks <= 0) return nullptr;
  if (blocks > 0x7FFFFFFF) return LaunchError(kListed<Kernel>.name.c_str(), "too many blocks for one launch");
  Run<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(kernel);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return nullptr;
  // A kernel runs after its launch has returned, so the fault may be an earlier one's, ours or another library's.
  return LaunchError((kListed<Kernel>.name + " (or a kernel before it)").c_str(), cudaGetErrorString(error));
}

#else

template <class Kernel>
const void* FunctionOf() {
  return nullptr;
}
template <class Kernel>
int64_t BlocksAtOnce() {  // few, so that a block has parts of several samples
  return 3;
}

#endif

#if defined(__CUDACC__)
#elif defined(JAXDALI_REAL_THREADS)

template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void*) {
  __atomic_fetch_add(&kListed<Kernel>.launches, 1, __ATOMIC_RELAXED);
  RunOnThreads<kThreads>(kernel, blocks);
  return nullptr;
}

#elif defined(JAXDALI_PTX)

template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void*) {
  static_assert(kThreads == ptx::kBlockThreads);
  return blocks > 0 ? ptx::Launch(typeid(Kernel).name(), &kernel, sizeof kernel, blocks) : nullptr;
}

#else

struct HostBlock {
  int index;
  std::minstd_rand* random;

  template <class F>
  void Phase(F f) const {  // an odd step visits every thread once, but not in ascending order
    static_assert((kThreads & (kThreads - 1)) == 0);
    const unsigned start = (*random)(), step = (*random)() | 1;
    for (unsigned t = 0; t < kThreads; t++) f(static_cast<int>((start + t * step) & (kThreads - 1)));
  }
};

// The emulation: blocks run one after another in a random order, and each finds garbage in its shared memory, so that
// kernels that depend on either give wrong results. The seed is fixed, so that failures repeat.
template <class Kernel>
const char* LaunchBlocks(const Kernel& kernel, int64_t blocks, void*) {
  __atomic_fetch_add(&kListed<Kernel>.launches, 1, __ATOMIC_RELAXED);
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

// --- kernels that work on each sample of a batch separately ----------------------------------------------------------
//
// Two launches. In the first, a thread computes the plan of a sample (all that the kernel has to know of it), and the
// number of pieces of its work. The second has as many blocks as run at once, or a few times as many. All pieces of all
// samples form one sequence, and each block gets an equal part of it, from one sample or from several neighbouring
// ones.
//
//   struct Planner {
//     Batch in, out;
//     struct Plan;                                          // trivially copyable
//     JAXDALI_HD Status Prepare(int i, Plan*) const;        // one thread: sample i's
//     JAXDALI_HD static int64_t CountPieces(const Plan&);
//   };
//   struct Kernel : Planner {
//     using Planner = ...;     // the base; a kernel without this line plans by itself
//     WorkSplit split;
//     struct Shared { Plan plan; ... };
//     template <class Block>
//     JAXDALI_HD void operator()(const Block&, Shared&) const;  // calls split.ForEach
//   };
//
// The kernels of an operator for several types share a planner, so that nvcc compiles the plan once.

// How the work of all samples is split among the blocks of the second launch. The working memory (Samples::plans) has
// three arrays, which the first launch writes and the second reads: plans, pieces of each sample, pieces of each group.
struct WorkSplit {
  Samples samples;
  int32_t grid;          // blocks of the second launch
  int32_t group = 1;     // samples that a block of the first launch plans
  int32_t planners = 0;  // blocks of the first launch, one for each group

  // Bytes of a plan. 16 of a sample's kPlanBytes are for the two counts.
  static constexpr int64_t kPlan = kPlanBytes - 16;
  // Threads of a block that plan at the same time, one of each warp: their paths differ, and so would their addresses.
  static constexpr int kPlanning = kThreads / 32;
  static constexpr int kMostPlanners = 128;  // each block of the second launch adds up what they have counted

  // Samples are spread over many blocks, since the plan of one takes thousands of instructions.
  void SpreadPlanning() {
    group = std::max((samples.n + kMostPlanners - 1) / kMostPlanners, kPlanning);
    planners = (samples.n + group - 1) / group;
  }

  JAXDALI_HD uint8_t* PlanOf(int i) const { return samples.plans + i * kPlan; }
  // [n]: the pieces of each sample.
  JAXDALI_HD int64_t* Counts() const { return reinterpret_cast<int64_t*>(samples.plans + samples.n * kPlan); }
  // [planners]: the pieces of each group.
  JAXDALI_HD int64_t* Totals() const { return Counts() + samples.n; }

  // The pieces of a block, which may go on in the samples that follow. There are too few pieces for a share of more
  // than 31 bits.
  struct BlockShare {
    int32_t pieces;  // number of them
    int32_t sample;  // the sample that contains the first one
    int64_t skip;    // pieces of this sample before it
  };
  // Finds a block's share by two searches: for the group that contains its first piece, then for the sample in this
  // group. The loops have no exits, so that their loads don't wait for each other.
  JAXDALI_NOINLINE JAXDALI_HD BlockShare ShareOf(int block) const {
    const int64_t *totals = Totals(), *counts = Counts();
    int64_t total = 0;
    JAXDALI_UNROLL_BY(8)
    for (int g = 0; g < planners; g++) total += totals[g];
    // The block has pieces begin to end - 1 of the sequence of all pieces.
    const int64_t begin = Divide(total * block, grid).quotient, end = Divide(total * (block + 1), grid).quotient;
    int64_t sum = 0, preceding = 0;  // pieces before the group, then before the sample, that contains `begin`
    int group_index = 0;
    JAXDALI_UNROLL_BY(8)
    for (int g = 0; g < planners; g++) {
      sum += totals[g];
      if (sum <= begin) preceding = sum, group_index = g + 1;
    }
    const int first = group_index * group, count = samples.n - first < group ? samples.n - first : group;
    sum = preceding;
    int sample = first;
    JAXDALI_UNROLL_BY(8)
    for (int k = 0; k < count; k++) {
      sum += counts[first + k];
      if (sum <= begin) preceding = sum, sample = first + k + 1;
    }
    return {static_cast<int32_t>(end - begin), sample, begin - preceding};
  }

  // Calls work(first, end) with the pieces of each sample that belong to the block, with the sample's plan in `shared`.
  template <class Block, class Shared, class Work>
  JAXDALI_HD void ForEach(const Block& block, Shared& s, Work work) const {
    auto [left, sample, skip] = ShareOf(block.index);
    if (left == 0) return;
    for (;;) {
      // All threads copy the plan to shared memory, by memcpy: compilers may reorder a plan that is read as words.
      block.Phase([&, from = PlanOf(sample)](int thread) {
        for (size_t k = 4 * static_cast<size_t>(thread); k < sizeof s.plan; k += 4 * kThreads)
          std::memcpy(__builtin_assume_aligned(reinterpret_cast<uint8_t*>(&s.plan) + k, 4),
                      __builtin_assume_aligned(from + k, 4), 4);
      });
      const int64_t count = Counts()[sample] - skip, end = skip + (count < left ? count : left);
      left -= static_cast<int32_t>(end - skip);
      sample++;
      work(skip, end);
      skip = 0;
      if (left == 0) return;
      block.Phase([](int) {});  // a thread may still read this plan
      while (Counts()[sample] == 0) sample++;
    }
  }
};

template <class Kernel, class = void>
struct PlannerOf {
  using type = Kernel;
};
template <class Kernel>
struct PlannerOf<Kernel, std::void_t<typename Kernel::Planner>> {
  using type = typename Kernel::Planner;
};

// The first launch. A block plans the samples of one group, WorkSplit::kPlanning at a time. It also writes their
// status.
template <class Planner>
struct PlanSamples {
  using Plan = typename Planner::Plan;
  static_assert(std::is_trivially_copyable_v<Plan> && sizeof(Plan) <= WorkSplit::kPlan && sizeof(Plan) % 4 == 0);

  Planner planner;
  WorkSplit split;

  struct Shared {
    struct alignas(16) Aligned {
      Plan plan;
    };
    Aligned plans[WorkSplit::kPlanning];
    int64_t counts[WorkSplit::kPlanning];
    int64_t total;
  };

  // The work of one CUDA block: n samples from `first` on. One thread of each warp plans a sample, then all threads
  // copy the plans.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int first = block.index * split.group, remaining = split.samples.n - first;
    const int n = remaining < split.group ? remaining : split.group;
    for (int done = 0; done < n; done += WorkSplit::kPlanning) {
      block.Phase([&](int thread) {
        const int warp = thread / 32;
        if (thread % 32 == 0) s.counts[warp] = done + warp < n ? PiecesOf(first + done + warp, &s.plans[warp].plan) : 0;
      });
      block.Phase([&](int thread) {  // all threads copy the plans to device memory
        constexpr int kWords = sizeof(Plan) / 4;
        for (int k = thread; k < WorkSplit::kPlanning * kWords; k += kThreads) {
          const int plan = k / kWords, word = k % kWords;
          if (s.counts[plan] > 0)
            std::memcpy(__builtin_assume_aligned(split.PlanOf(first + done + plan) + 4 * word, 4),
                        __builtin_assume_aligned(reinterpret_cast<const uint8_t*>(&s.plans[plan].plan) + 4 * word, 4),
                        4);
        }
        if (thread < WorkSplit::kPlanning && done + thread < n)
          split.Counts()[first + done + thread] = s.counts[thread];
        if (thread > 0) return;
        int64_t total = done > 0 ? s.total : 0;
        for (int k = 0; k < WorkSplit::kPlanning; k++) total += s.counts[k];
        s.total = total;
      });
    }
    block.Phase([&](int thread) {
      if (thread == 0) split.Totals()[block.index] = s.total;
    });
  }

 private:
  // Plans sample i, writes its status, and returns the number of its pieces.
  JAXDALI_HD int64_t PiecesOf(int i, Plan* plan) const {
    const Samples& samples = split.samples;
    Status code = kOk;
    if (samples.present[i]) code = planner.in.valid(i) && planner.out.valid(i) ? planner.Prepare(i, plan) : kInternal;
    samples.status[i] = code;
    return samples.present[i] && code == kOk ? Planner::CountPieces(*plan) : 0;
  }
};

// A function of its own, so that one source compiles the plans of kernels in several (an explicit instantiation).
template <class Planner>
const char* LaunchPlans(const Planner& planner, const WorkSplit& split, void* stream) {
  return LaunchBlocks(PlanSamples<Planner>{planner, split}, split.planners, stream);
}

// Plans all samples, then runs the kernel on their pieces. `pieces` is an upper bound of these; only the number of
// blocks depends on it. Returns null or an error message.
template <class Kernel>
const char* LaunchPlanned(Kernel kernel, const Samples& samples, int64_t pieces, void* stream) {
  if (samples.n == 0) return nullptr;
  const int64_t grid = std::clamp<int64_t>(pieces, 1, 2 * BlocksAtOnce<Kernel>());
  kernel.split = {samples, static_cast<int32_t>(grid)};
  kernel.split.SpreadPlanning();
  using Planner = typename PlannerOf<Kernel>::type;
  static_assert(std::is_same_v<typename Planner::Plan, typename Kernel::Plan>);
  if (const char* error = LaunchPlans(Planner{kernel}, kernel.split, stream)) return error;
  return LaunchBlocks(kernel, grid, stream);
}

// A kernel whose threads are independent of each other:
//
//   struct Kernel {  // or with a base that is its planner, which has what stands before Work
//     Batch in, out;
//     struct Plan { int64_t units; ... };                                      // units: of work, less than elements
//     JAXDALI_HD Status Prepare(int i, Plan*) const;                           // sample i's
//     JAXDALI_HD void Work(const Plan&, int64_t first, int64_t end) const;     // units first, first + kThreads, ...
//   };
inline constexpr int64_t kPiece = kThreads;  // units: small, so that blocks get equal parts

template <class Planner>
struct SamplePlanner : Planner {
  JAXDALI_HD static int64_t CountPieces(const typename Planner::Plan& plan) {
    return (plan.units + kPiece - 1) / kPiece;
  }
};

template <class Kernel>
struct SampleKernel : Kernel {
  using Planner = SamplePlanner<typename PlannerOf<Kernel>::type>;
  using typename Kernel::Plan;

  WorkSplit split;

  struct Shared {
    Plan plan;
  };

  // The work of one CUDA block: its share of the pieces of all samples, which are pieces first ... end - 1 of each.
  // Thread t does unit t of each piece.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      block.Phase([&](int thread) {
        this->Work(s.plan, first * kPiece + thread, s.plan.units < end * kPiece ? s.plan.units : end * kPiece);
      });
    });
  }
};

// Launches a kernel whose threads are independent, see above. Returns null or an error message.
template <class Kernel>
const char* Launch(const Kernel& kernel, const Samples& samples, void* stream) {
  const int64_t pieces = kernel.out.capacity / kPiece + samples.n;
  return LaunchPlanned(SampleKernel<Kernel>{kernel, /*split=*/{}}, samples, pieces, stream);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_LAUNCH_H_
