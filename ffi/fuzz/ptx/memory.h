// The memory of interpreted kernels, and the races in it.
//
// Global memory is the heap of the program: operator new is replaced (memory.cc), so that each access of a kernel can
// be checked against what is allocated. Addresses below 4 GB are windows for shared memory, local memory and
// parameters.
#ifndef JAXDALI_FFI_FUZZ_PTX_MEMORY_H_
#define JAXDALI_FFI_FUZZ_PTX_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace jaxdali::ptx {

// An error of a kernel, or an instruction that the interpreter does not know.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr uint64_t kSharedWindow = 0x1000000, kLocalWindow = 0x2000000, kParameterWindow = 0x3000000,
                          kWindowsEnd = 0x4000000;

inline constexpr int kInstructionBits = 21;

// The last access to a byte of one kind. A phase is the time between two barriers of a block; phases have ascending
// numbers over all blocks and launches of the program, because blocks run one after the other.
struct Access {
  uint32_t phase;                           // 0: none
  uint32_t thread : 8;                      // of the last access
  uint32_t several_threads : 1;             // of the block had access in this phase
  uint32_t other_blocks : 1;                // of the launch had access
  uint32_t atomic : 1;                      // all accesses of this phase were atomic
  uint32_t instruction : kInstructionBits;  // of the last access
};

struct ByteHistory {
  Access write, read;
};

// The current phase, and the phases in which the launch and the block began. In shared memory, which no other block
// sees, the launch begins with the block.
struct Clock {
  uint32_t launch, block, phase;
};

// kReadOnly: ld.global.nc. kAtomicRead: ld.volatile or ld.relaxed. kAtomic: all that write atomically.
enum class Kind { kRead, kReadOnly, kAtomicRead, kWrite, kAtomic };
constexpr bool IsAtomic(Kind kind) { return kind == Kind::kAtomic || kind == Kind::kAtomicRead; }

// Whether an access of `thread` now may happen at the same time as an earlier one.
inline bool IsConcurrent(const Access& earlier, unsigned thread, const Clock& now) {
  if (earlier.phase < now.launch) return false;
  return earlier.phase < now.block || earlier.other_blocks ||
         (earlier.phase == now.phase && (earlier.thread != thread || earlier.several_threads));
}

// Makes `last` the record of an access now, together with the earlier ones of the same phase and launch.
inline void UpdateAccess(Access* last, unsigned thread, bool atomic, uint32_t instruction, const Clock& now) {
  const bool same_launch = last->phase >= now.launch, same_phase = last->phase == now.phase;
  *last = {now.phase,
           thread,
           same_phase && (last->several_threads || last->thread != thread),
           same_launch && (last->other_blocks || last->phase < now.block),
           atomic && (!same_phase || last->atomic),
           instruction};
}

// Enters an access to one byte. Returns the earlier access that it races with, or null. Two accesses race if no barrier
// is between them and one of them writes, unless both are atomic. Data for the read-only cache (ld.global.nc) must not
// be written by the launch at all. Writes of equal values race, too: the memory model of PTX gives them no meaning, and
// no kernel needs them.
template <Kind kind>
const Access* RecordAccess(ByteHistory* byte, unsigned thread, uint32_t instruction, const Clock& now) {
  constexpr bool is_write = kind == Kind::kWrite || kind == Kind::kAtomic;
  const auto has_race = [&](const Access& earlier) {
    return IsConcurrent(earlier, thread, now) && !(IsAtomic(kind) && earlier.atomic);
  };
  if (kind == Kind::kReadOnly ? byte->write.phase >= now.launch : has_race(byte->write)) return &byte->write;
  if (is_write && has_race(byte->read)) return &byte->read;
  UpdateAccess(is_write ? &byte->write : &byte->read, thread, IsAtomic(kind), instruction, now);
  return nullptr;
}

// The heap: a region with a map of allocated bytes and the history of each byte.
struct Heap {
  static constexpr size_t kBytes = size_t{1} << 31;
  static constexpr size_t kUnit = 16;  // alignment. No more, as a kernel must not expect more of a sample's bytes

  uint8_t* begin;
  uint8_t* allocated;  // 1 for each byte that is
  ByteHistory* history;

  bool Contains(uint64_t address) const { return address - reinterpret_cast<uint64_t>(begin) < kBytes; }
};
extern Heap heap;

}  // namespace jaxdali::ptx

#endif  // JAXDALI_FFI_FUZZ_PTX_MEMORY_H_
