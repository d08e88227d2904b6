// Kernels with one fault each, and some without. check_ptx.cc says what the interpreter must find.
#include "ffi/common/launch.h"
#include "ffi/fuzz/ptx/faulty.h"

namespace jaxdali::faulty {
namespace {

// A statement that only the GPU's code has; the host's compiler does not see it.
#if defined(__CUDA_ARCH__)
#define JAXDALI_DEVICE(statement) statement
#else
#define JAXDALI_DEVICE(statement)
#endif

// The base of all kernels. They are launched with two blocks.
struct WithData {
  int32_t* data;  // two for each thread of two blocks

  struct Shared {
    int32_t values[kThreads];
  };
  JAXDALI_HD int32_t* SlotOf(int block, int thread) const { return data + 2 * (block * kThreads + thread); }
};

// Writes are no use to a compiler, and left out, unless something reads them: `Kernel::Use` runs in one phase, and `s`
// is copied to the data in the next.
template <class Kernel>
struct Copied : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) { static_cast<const Kernel*>(this)->Use(thread, s); });
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = s.values[thread]; });
  }
};

// Right: reads after a barrier what the next thread has written.
struct Neighbours : WithData {  // right
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) { s.values[thread] = thread; });
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = s.values[(thread + 1) % kThreads]; });
  }
};

// Right: atomic additions of several threads and blocks to one slot don't race.
struct Sum : WithData {  // right
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&]([[maybe_unused]] int thread) { JAXDALI_DEVICE(atomicAdd(data, thread)); });
  }
};

// Right: ScanBlock exchanges values within warps.
struct Scan : WithData {  // right
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) { s.values[thread] = thread; });
    ScanBlock(block, s.values, [](int32_t a, int32_t b) { return a + b; });
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = s.values[thread]; });
  }
};

// The slot of 8 bytes begins 4 bytes behind a multiple of 8.
struct Misaligned : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *reinterpret_cast<int64_t*>(SlotOf(0, 0) + 1) = thread; });
  }
};

struct Outside : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *SlotOf(block.index + 1, thread) = 0; });
  }
};

// The last thread writes behind the end of `values`. data[0] is 0 at first, which the compiler does not know.
struct OutsideOfShared : Copied<OutsideOfShared> {
  JAXDALI_HD void Use(int thread, Shared& s) const { s.values[thread + data[0] + 1] = 0; }
};

// Two threads write the same element: here different values, below equal ones.
struct BothWrite : Copied<BothWrite> {
  JAXDALI_HD void Use(int thread, Shared& s) const { s.values[thread / 2] = thread; }
};

struct BothWriteTheSame : Copied<BothWriteTheSame> {
  JAXDALI_HD void Use(int thread, Shared& s) const { s.values[thread / 2] = 1; }
};

// A thread reads what the next one writes in the same phase.
struct NoBarrierBefore : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      s.values[thread] = thread;
      *SlotOf(block.index, thread) = s.values[(thread + 1) % kThreads];
    });
  }
};

// A thread overwrites what the one before it may still read.
struct NoBarrierAfter : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) { s.values[thread] = thread; });
    block.Phase([&](int thread) {
      *SlotOf(block.index, thread) = s.values[(thread + 1) % kThreads];
      s.values[thread] = 0;
    });
  }
};

// Two threads of a block write the same slot.
struct GlobalInBlock : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *SlotOf(block.index, thread / 2) = thread; });
  }
};

// Both blocks write the same slots.
struct BlocksWrite : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *SlotOf(0, thread) = thread; });
  }
};

// Each block reads the slots that the other one writes.
struct BlocksReadAndWrite : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = *SlotOf(1 - block.index, thread); });
  }
};

// A thread that has read writes, after others have read, too: the history of the byte must tell that there were
// several.
struct OneOfManyThreadsWrites : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    if (block.index > 0) return;
    block.Phase([&](int thread) {
      s.values[thread] = data[0];
      if (thread == s.values[thread]) data[0] = 1;
    });
  }
};
// The same with blocks: one of those that have read writes.
struct OneOfManyBlocksWrites : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      if (thread > 0) return;
      s.values[thread] = data[0];
      if (block.index == s.values[thread]) data[0] = 1;
    });
  }
};

// Some threads read plainly what others write atomically.
struct AtomicAndPlain : Copied<AtomicAndPlain> {
  JAXDALI_HD void Use(int thread, Shared& s) const {
    if (thread % 2 == 0) {
      JAXDALI_DEVICE(atomicAdd(data, 1));
    } else {
      s.values[thread] = data[0];
    }
  }
};

// Right: a volatile read counts as atomic.
struct AtomicBesideAtomic : Copied<AtomicBesideAtomic> {  // right
  JAXDALI_HD void Use(int thread, Shared& s) const {
    s.values[thread] = 0;
    if (thread % 2 == 0) {
      JAXDALI_DEVICE(atomicMax(data + 1, 1));
    } else {
      s.values[thread] = *static_cast<volatile int32_t*>(data + 1);
    }
  }
};

// Reads through the read-only cache what the launch has written.
struct ReadOnly : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, [[maybe_unused]] Shared& s) const {
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = thread; });
    block.Phase(
        [&]([[maybe_unused]] int thread) { JAXDALI_DEVICE(s.values[thread] = __ldg(SlotOf(block.index, thread))); });
  }
};

// Only some threads reach a barrier.
struct MissedBarrier : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      s.values[thread] = thread;
      if (thread < 64) JAXDALI_DEVICE(__syncthreads());
    });
  }
};

// All threads reach a barrier, but not the same one.
struct DifferentBarriers : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      if (thread < 64) {
        JAXDALI_DEVICE(__syncthreads());
        s.values[thread] = 1;
      } else {
        s.values[thread] = 2;
        JAXDALI_DEVICE(__syncthreads());
      }
    });
  }
};

// Half of a warp takes part in an exchange of all its threads.
struct PartOfAWarp : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, [[maybe_unused]] Shared& s) const {
    block.Phase([&](int thread) {
      if (thread % 32 < 16) JAXDALI_DEVICE(s.values[thread] = __shfl_up_sync(0xFFFFFFFFu, s.values[thread], 1));
    });
  }
};

// All threads take part in an exchange, whose mask has half of them.
struct PartOfTheMask : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, [[maybe_unused]] Shared& s) const {
    block.Phase([&]([[maybe_unused]] int thread) {
      JAXDALI_DEVICE(s.values[thread] = __shfl_up_sync(0x0000FFFFu, thread, 1));
    });
  }
};

// nvcc sees a larger struct than the host's compiler.
struct OtherSize : WithData {
#if defined(__CUDACC__)
  int64_t extra;
#endif
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&](int thread) { *SlotOf(block.index, thread) = 0; });
  }
};

struct Endless : WithData {
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared&) const {
    block.Phase([&]([[maybe_unused]] int thread) { JAXDALI_DEVICE(while (atomicAdd(data, 0) == 0)); });
  }
};

// Launches two blocks of a kernel. Returns null, or the fault.
template <class Kernel>
const char* LaunchOne(int32_t* data) {
  Kernel kernel{};
  kernel.data = data;
  return LaunchBlocks(kernel, 2, nullptr);
}

}  // namespace

// All kernels, and a part of what the interpreter must say of each; "": the kernel is right.
#define JAXDALI_FAULTY(kernel) #kernel, LaunchOne<kernel>
// All faulty kernels, each with a part of the message of its Fault; "": the kernel is right.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases{
      {JAXDALI_FAULTY(Neighbours), ""},
      {JAXDALI_FAULTY(Sum), ""},
      {JAXDALI_FAULTY(Scan), ""},
      {JAXDALI_FAULTY(Misaligned), "misaligned access of 8 bytes"},
      {JAXDALI_FAULTY(Outside), "outside of all arrays"},
      {JAXDALI_FAULTY(OutsideOfShared), "no address of this memory"},
      {JAXDALI_FAULTY(BothWrite), "race in shared memory: the byte is written by another thread"},
      {JAXDALI_FAULTY(BothWriteTheSame), "race in shared memory: the byte is written by another thread"},
      {JAXDALI_FAULTY(NoBarrierBefore), "race in shared memory"},
      {JAXDALI_FAULTY(NoBarrierAfter), "race in shared memory"},
      {JAXDALI_FAULTY(GlobalInBlock), "race in global memory: the byte is written by another thread"},
      {JAXDALI_FAULTY(BlocksWrite), "another block"},
      {JAXDALI_FAULTY(BlocksReadAndWrite), "another block"},
      {JAXDALI_FAULTY(OneOfManyThreadsWrites), "race in global memory"},
      {JAXDALI_FAULTY(OneOfManyBlocksWrites), "another block"},
      {JAXDALI_FAULTY(AtomicAndPlain), "race in global memory"},
      {JAXDALI_FAULTY(AtomicBesideAtomic), ""},
      {JAXDALI_FAULTY(ReadOnly), "read-only cache"},
      {JAXDALI_FAULTY(MissedBarrier), "waits at a barrier"},
      {JAXDALI_FAULTY(DifferentBarriers), "waits at a barrier"},
      {JAXDALI_FAULTY(PartOfAWarp), "waits at an exchange in its warp"},
      {JAXDALI_FAULTY(PartOfTheMask), "not all threads of the warp"},
      {JAXDALI_FAULTY(OtherSize), "for the host's compiler"},
      {JAXDALI_FAULTY(Endless), "does not end"},
  };
  return cases;
}

}  // namespace jaxdali::faulty
