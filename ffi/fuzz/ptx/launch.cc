// This interpreter goes once `tests/gpu` has run on a GPU with these kernels. Parts of them are newer than the last run
// there (tests/benchmarks/RESULTS.md, "GPUs").
//
// Finds kernels by their types in the files of PTX, and runs their blocks in random order, each with its 256 threads. A
// thread runs until a barrier, an exchange in its warp, or its end; module.cc and decode.cc make the instructions.
#include "ffi/fuzz/ptx/launch.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ffi/fuzz/ptx/module.h"

namespace jaxdali::ptx {
namespace {

// The readable form of a C++ symbol, or the symbol itself if it is none.
std::string Demangle(const char* name) {
  int status;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return text ? text.get() : name;
}

// The TYPE of a kernel "void jaxdali::Run<TYPE>(TYPE)", which may contain further brackets. Other entries: the whole
// text.
std::string KernelType(const std::string& entry) {
  const std::string text = Demangle(entry.c_str());
  const size_t begin = text.find("Run<");
  if (begin == text.npos) return text;
  int depth = 0;
  for (size_t k = begin + 3; k < text.size(); k++) {
    if (text[k] == '<') depth++;
    if (text[k] == '>' && --depth == 0) return std::string(Trim(text.substr(begin + 4, k - begin - 4)));
  }
  return text;
}

struct Kernel {
  Module* module;                      // the file
  std::string entry;                   // the symbol in it
  bool is_ambiguous = false;           // other files have one with the same type
  const Function* function = nullptr;  // null: not decoded yet
  int64_t launches = 0;
  uint64_t instructions = 0;  // of all launches
};

uint64_t g_num_executed = 0;  // instructions of all threads so far

// All kernels in the folder's PTX files, by the TYPE of `Run<TYPE>`; a type in two files is ambiguous.
class Kernels {
 public:
  // Reads all files of the folder, and notes the kernels in them. Nothing is decoded yet.
  Kernels() {
    const char* folder_override = std::getenv("JAXDALI_PTX_FOLDER");
    const std::filesystem::path folder = folder_override ? folder_override : JAXDALI_PTX_FOLDER;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".ptx") continue;
      Module& module = *modules_.emplace_back(std::make_unique<Module>(file.path().string()));
      for (const auto& [name, entry] : module.entries) {
        if (!entry->is_kernel) continue;
        const auto [at, is_new] = kernels_.emplace(KernelType(name), Kernel{&module, name});
        at->second.is_ambiguous = !is_new;
      }
    }
  }
  // Prints how many instructions each kernel took, if JAXDALI_PTX_COUNT is set.
  ~Kernels() {
    if (!std::getenv("JAXDALI_PTX_COUNT")) return;
    for (const auto& [type, kernel] : kernels_)
      if (kernel.launches > 0)
        std::printf("%12.0f instructions a launch, %6ld launches: %s\n",
                    static_cast<double>(kernel.instructions) / static_cast<double>(kernel.launches),
                    static_cast<long>(kernel.launches), type.c_str());
  }

  // Decodes all kernels, and prints the errors of those that can't be. Returns how many there are; 0 after an error.
  int DecodeAll() {
    bool is_good = true;
    for (auto& [type, kernel] : kernels_) {
      try {
        Get(type);
      } catch (const Fault& fault) {
        std::printf("%s: %s\n", type.c_str(), fault.what());
        is_good = false;
      }
    }
    return is_good ? static_cast<int>(kernels_.size()) : 0;
  }

  // The kernel of a type, decoded. Throws a Fault if there is not exactly one.
  Kernel& Get(const std::string& type) {
    const auto kernel_entry = kernels_.find(type);
    if (kernel_entry == kernels_.end()) throw Fault("not in the PTX");
    Kernel& kernel = kernel_entry->second;
    if (kernel.is_ambiguous) throw Fault("two kernels have this name");
    if (!kernel.function) kernel.function = kernel.module->Get(kernel.entry);
    return kernel;
  }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, Kernel> kernels_;
};

Kernels& AllKernels() {
  static Kernels kernels;
  return kernels;
}

// The state of a block while it runs. Its memory is kept for the next one.
class Machine {
 public:
  Machine() : threads_(kBlockThreads) {}

  // Runs all blocks, one after the other in random order, each with the same parameters.
  void Run(const Function& kernel, const void* parameters, size_t parameter_bytes, int64_t blocks) {
    std::minstd_rand random(static_cast<unsigned>(blocks));  // the same order at each launch of so many blocks
    std::vector<uint32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    block_.kernel = &kernel;
    block_.parameters = static_cast<const uint8_t*>(parameters);
    block_.parameter_bytes = parameter_bytes;
    block_.blocks = static_cast<uint32_t>(blocks);
    for (const Range& variable : kernel.shared)
      shared_.resize(std::max<size_t>(shared_.size(), variable.begin + variable.size));
    shared_history_.resize(shared_.size());
    block_.shared = shared_.data();
    block_.shared_history = shared_history_.data();
    registers_.resize(std::max<size_t>(registers_.size(), size_t{kBlockThreads} * kernel.all_registers), kGarbage);
    local_.resize(std::max<size_t>(local_.size(), size_t{kBlockThreads} * kernel.all_frame_bytes));
    // Phases ascend over all launches: this one begins with the next phase, and each of its blocks with another one.
    const uint32_t launch = phase_ + 1;
    for (const uint32_t index : order) {
      block_.index = index;
      phase_++;
      block_.clock = {launch, phase_, phase_};
      RunBlock(random);
    }
  }

 private:
  // New registers hold it before they are set, so that a kernel can't rely on zeros.
  static constexpr uint64_t kGarbage = 0xA5A5A5A5A5A5A5A5;

  // Runs the threads of a block from barrier to barrier, up to their end. Throws a Fault if they don't all reach the
  // same barrier. `random`: for the order of the threads, and for the first contents of shared memory.
  void RunBlock(std::minstd_rand& random) {
    const Function& kernel = *block_.kernel;
    for (const Range& variable : kernel.shared)  // garbage
      std::memset(shared_.data() + variable.begin, static_cast<int>(random() & 255), variable.size);
    for (unsigned k = 0; k < kBlockThreads; k++) {
      Thread& t = threads_[k];
      t.block = &block_;
      t.index = k;
      t.state = Thread::kRunning;
      t.at = kernel.code.data();
      t.local = local_.data() + size_t{k} * kernel.all_frame_bytes;
      t.frames.assign(1, {&kernel, nullptr, registers_.data() + size_t{k} * kernel.all_registers, t.local});
      t.frames[0].registers[kTrue] = 1;  // the guard of instructions without one
      t.Enter(t.frames[0]);
    }
    while (true) {
      // Each thread runs as far as it can: to a barrier, an exchange in its warp, or its end. An odd step visits every
      // thread once, but not in ascending order.
      const unsigned offset = random(), stride = random() | 1;
      for (unsigned k = 0; k < kBlockThreads; k++)
        if (Thread& t = threads_[(offset + k * stride) % kBlockThreads]; t.state == Thread::kRunning) RunThread(&t);
      if (ExchangeInWarps()) continue;
      // All threads must be at the same barrier, with as many calls that have not returned, or all have ended.
      const Thread& first = threads_[0];
      for (const Thread& t : threads_)
        if (t.state != first.state || t.at != first.at || t.frames.size() != first.frames.size())
          if (t.state != Thread::kEnded || first.state != Thread::kEnded) FailDiverged("a barrier", first, t);
      if (first.state == Thread::kEnded) return;
      block_.clock.phase = ++phase_;
      for (Thread& t : threads_) Resume(&t);
    }
  }

  // Runs a thread up to a barrier, an exchange in its warp, or its end. An instruction whose guard does not hold is
  // skipped.
  static void RunThread(Thread* t) {
    uint64_t count = 0;
    const Instruction* i = t->at;
    while (i) {
      count++;
      const bool guard = t->registers[i->guard] & 1;
      if (count > kMaxInstructions) Fail(*i, *t, "the thread does not end");
      i = guard == i->guard_value ? i->run(*i, *t) : i + 1;
    }
    g_num_executed += count;
  }
  static constexpr uint64_t kMaxInstructions = uint64_t{1} << 28;

  static void Resume(Thread* t) {
    t->state = Thread::kRunning;
    t->at++;
  }

  // Runs the exchanges that threads wait for. False if none does. All threads of a warp must wait at the same one.
  bool ExchangeInWarps() {
    bool has_exchange = false;
    for (unsigned w = 0; w < kBlockThreads; w += kWarpThreads) {
      Thread* warp = &threads_[w];
      const Thread* waiting =
          std::find_if(warp, warp + kWarpThreads, [](const Thread& t) { return t.state == Thread::kInWarp; });
      if (waiting == warp + kWarpThreads) continue;
      for (unsigned k = 0; k < kWarpThreads; k++)
        if (warp[k].at != waiting->at || warp[k].frames.size() != waiting->frames.size() ||
            warp[k].state != Thread::kInWarp)
          FailDiverged("an exchange in its warp", *waiting, warp[k]);
      waiting->at->run_warp(*waiting->at, warp);
      for (unsigned k = 0; k < kWarpThreads; k++) Resume(&warp[k]);
      has_exchange = true;
    }
    return has_exchange;
  }

  // Throws the Fault that two threads are at different places, of which one waits at `place`.
  [[noreturn]] static void FailDiverged(const char* place, const Thread& a, const Thread& b) {
    const Thread &waiting = a.state == Thread::kEnded ? b : a, &other = a.state == Thread::kEnded ? a : b;
    Fail(*waiting.at, waiting,
         std::string("the thread waits at ") + place + ", but thread " + std::to_string(other.index) + " is at\n" +
             Describe(other.at->number) + "\n ");
  }

  Block block_{};
  std::vector<Thread> threads_;
  std::vector<uint64_t> registers_;          // of all threads
  std::vector<uint8_t> local_, shared_;      // frames of all threads; shared memory
  std::vector<ByteHistory> shared_history_;  // of each byte of it
  uint32_t phase_ = 0;                       // the time between two barriers; ascends over all blocks and launches
};

}  // namespace

void Fail(const Instruction& i, const Thread& t, const std::string& message) {
  throw Fault(message + " in block " + std::to_string(t.block->index) + ", thread " + std::to_string(t.index) +
              ", at\n" + Describe(i.number));
}

// Runs all blocks of the kernel of a type. Returns null or an error message. The kernel's one parameter is the struct
// of the kernel, as in Run<TYPE>(TYPE).
const char* Launch(const char* type, const void* parameter, size_t size, int64_t blocks) {
  static Machine machine;
  static std::string message;
  const std::string name = Demangle(type);
  try {
    Kernel& kernel = AllKernels().Get(name);
    const auto& parameters = kernel.function->parameters;
    if (parameters.size() != 1 || parameters[0].size != size)
      throw Fault("the parameter has " + std::to_string(parameters.empty() ? 0 : parameters[0].size) +
                  " bytes in the PTX and " + std::to_string(size) + " for the host's compiler");
    const uint64_t executed_before = g_num_executed;
    machine.Run(*kernel.function, parameter, size, blocks);
    kernel.launches++;
    kernel.instructions += g_num_executed - executed_before;
  } catch (const Fault& fault) {
    message = name + ": " + fault.what();
    return message.c_str();
  }
  return nullptr;
}

int DecodeAll() { return AllKernels().DecodeAll(); }

uint64_t InstructionCount() { return g_num_executed; }

}  // namespace jaxdali::ptx
