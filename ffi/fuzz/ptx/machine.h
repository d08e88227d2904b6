// The machine that runs PTX: functions as decoded instructions (module.h makes them), and the threads of a block
// (launch.cc runs them).
#ifndef JAXDALI_FFI_FUZZ_PTX_MACHINE_H_
#define JAXDALI_FFI_FUZZ_PTX_MACHINE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ffi/fuzz/ptx/launch.h"
#include "ffi/fuzz/ptx/memory.h"

namespace jaxdali::ptx {

struct Instruction;
struct Function;
struct Thread;

inline constexpr unsigned kWarpThreads = 32;

// Runs an instruction and returns the next one. Null if the thread stops; the reason is in `state`.
using Handler = const Instruction* (*)(const Instruction&, Thread&);
// Runs an instruction for all threads of a warp at once.
using WarpHandler = void (*)(const Instruction&, Thread* warp);

// The source of a value: a register of the frame or a constant of the function.
struct Source {
  enum Base : uint32_t { kRegister, kConstant } base = kConstant;
  uint32_t index = 0;
};

// Register 0 of each frame always holds true. It is the guard of instructions that have none in the PTX.
inline constexpr uint32_t kTrue = 0;

// Bytes of a frame, of parameters or of shared memory.
struct Range {
  uint32_t begin, size;
};

// A call of a function, whose arguments and results are copied between the frames.
struct Call {
  struct Copy {
    uint32_t from, to, size;
  };
  const Function* callee;
  std::vector<Copy> arguments, results;  // from the caller's frame to the callee's, and back
};

struct Instruction {
  Handler run = nullptr;
  WarpHandler run_warp = nullptr;
  uint32_t guard = kTrue;  // a register
  bool guard_value = true;
  bool flag = false;              // dp2a: the higher bytes; a predicate: negated
  uint16_t used = 0xFFFF;         // bytes of a vector that are used
  uint32_t number = 0;            // of all instructions
  uint32_t destinations[4] = {};  // registers
  // The operands in the statement's order. Of an access to memory: 0 is the address, those from 1 on are the values.
  Source sources[5];
  int64_t offset = 0;                    // of an address, or the place in the frame
  uint64_t address_mask = ~uint64_t{0};  // of the register with the address, which may have 32 bits
  const Instruction* target = nullptr;
  const Call* call = nullptr;
};

struct Module;

struct Function {
  // The place of an instruction in the text of the module, and the source that it comes from.
  struct Place {
    uint32_t line, file, source_line;  // file 0: unknown
  };

  std::string name;
  const Module* module = nullptr;
  std::vector<Instruction> code;
  std::vector<Place> places;
  std::vector<uint64_t> constants;
  std::deque<Call> calls;
  std::vector<Range> parameters, result;    // in the frame; a kernel's: in its parameters
  uint32_t registers = 1, frame_bytes = 0;  // numbers of registers (see kTrue) and of bytes that a call takes
  // With the functions that it calls.
  uint32_t all_registers = 0, all_frame_bytes = 0;
  std::vector<Range> shared;  // the variables in shared memory
};

// The block that runs now.
struct Block {
  const Function* kernel;
  const uint8_t* parameters;
  size_t parameter_bytes;
  uint32_t index, blocks;
  uint8_t* shared;
  ByteHistory* shared_history;
  Clock clock;
};

// A call that has not returned.
struct Frame {
  const Function* function;
  const Instruction* call;  // in the caller
  uint64_t* registers;
  uint8_t* memory;
};

struct Thread {
  enum State { kRunning, kAtBarrier, kInWarp, kEnded };

  const uint64_t* bases[2];  // registers and constants of the frame
  uint64_t* registers;
  uint8_t* memory;  // of the frame
  Block* block;
  uint8_t* local;         // memory of all frames
  const Instruction* at;  // where it has stopped
  uint32_t index;         // in the block
  State state;
  std::vector<Frame> frames;  // from the kernel's on

  // Makes a frame the current one.
  void Enter(const Frame& frame) {
    registers = frame.registers;
    bases[Source::kRegister] = frame.registers;
    bases[Source::kConstant] = frame.function->constants.data();
    memory = frame.memory;
  }
};

// Throws a Fault with the kernel, the instruction and the thread.
[[noreturn]] void Fail(const Instruction&, const Thread&, const std::string& message);

// The instruction of this number, with the lines of the source and of the PTX.
std::string Describe(uint32_t number);

}  // namespace jaxdali::ptx

#endif  // JAXDALI_FFI_FUZZ_PTX_MACHINE_H_
