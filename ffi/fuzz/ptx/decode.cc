// The instructions of PTX that nvcc makes of the kernels: a handler for each, as a template over its types, and
// Decoder, which chooses it by the words of the statement. An unknown instruction is a Fault at its first use.
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "ffi/fuzz/ptx/module.h"

namespace jaxdali::ptx {
namespace {

// --- registers -------------------------------------------------------------------------------------------------------
// A register has 64 bits. Each instruction reads as many as its type has, so the bits above don't matter. Handlers run
// an instruction: they read i.sources, set i.destinations, and return the next instruction (Handler in machine.h).

// Reads a source. The value's bits are the lowest ones of the register.
template <class T>
T Get(const Thread& t, Source s) {
  const uint64_t bits = t.bases[s.base][s.index];
  if constexpr (std::is_same_v<T, bool>) {
    return bits & 1;
  } else {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
}

// Writes register `index` of the current frame.
template <class T>
void Set(Thread& t, uint32_t index, T value) {
  uint64_t bits = 0;
  if constexpr (std::is_floating_point_v<T>)
    std::memcpy(&bits, &value, sizeof value);
  else
    bits = static_cast<uint64_t>(value);  // signed numbers fill wider registers with their sign
  t.registers[index] = bits;
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

// An instruction that sets a register to f(sources...).
template <class F, class D, class... S>
struct FunctionOf {
  template <size_t... k>
  static void Do(const Instruction& i, Thread& t, std::index_sequence<k...>) {
    Set<D>(t, i.destinations[0], F{}(Get<S>(t, i.sources[k])...));
  }
  static const Instruction* Run(const Instruction& i, Thread& t) {
    Do(i, t, std::index_sequence_for<S...>{});
    return &i + 1;
  }
};
// The handler for f, whose result has the type D and whose sources have the types S. Only the type of the lambda
// counts.
template <class D, class... S, class F>
Handler Make(F) {
  return &FunctionOf<F, D, S...>::Run;
}

// Twice as wide.
template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Integers wrap around.
template <class T>
T Add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
T Subtract(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
T Multiply(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Minimum and maximum of floats, as PTX defines them: of a number and NaN, the number; zero is larger than minus zero.
template <class T>
T MinNumber(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <class T>
T MaxNumber(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

// div and rem of integers.
template <class T, bool is_remainder>
const Instruction* Divide(const Instruction& i, Thread& t) {
  const T a = Get<T>(t, i.sources[0]), b = Get<T>(t, i.sources[1]);
  if (b == 0) Fail(i, t, "division by zero");
  // The smallest number divided by -1 overflows, which C++ leaves undefined.
  const bool overflows = std::is_signed_v<T> && b == static_cast<T>(-1);
  if constexpr (is_remainder)
    Set<T>(t, i.destinations[0], overflows ? T{0} : static_cast<T>(a % b));
  else
    Set<T>(t, i.destinations[0], overflows ? Subtract(T{0}, a) : static_cast<T>(a / b));
  return &i + 1;
}

// f to both halves of two words.
template <class F>
uint32_t ApplyToHalves(uint32_t a, uint32_t b, F f) {
  const auto half = [](uint32_t word, int k) {
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(word >> 16 * k)));
  };
  uint32_t result = 0;
  for (int k = 0; k < 2; k++)
    result |= uint32_t{std::bit_cast<uint16_t>(static_cast<_Float16>(f(half(a, k), half(b, k))))} << 16 * k;
  return result;
}

// Floats to integers: cut to the range. NaN is zero, or the highest bit alone where 64 bits are involved.
template <class D, class S>
D ToInteger(S value) {
  if (std::isnan(value))
    return sizeof(D) == 8 || sizeof(S) == 8 ? static_cast<D>(uint64_t{1} << (8 * sizeof(D) - 1)) : D{0};
  constexpr D min_value = std::numeric_limits<D>::min(), max_value = std::numeric_limits<D>::max();
  if (value <= static_cast<S>(min_value)) return min_value;
  return value >= static_cast<S>(max_value) ? max_value : static_cast<D>(value);
}

// prmt: each hexadecimal digit of `selectors`, from the lowest on, selects one of eight bytes. With its highest bit,
// the result is that byte's sign instead, as eight bits.
uint32_t Permute(uint32_t low, uint32_t high, uint32_t selectors) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int k = 0; k < 4; k++) {
    const uint32_t selector = selectors >> 4 * k & 15;
    auto byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7) & 255);
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * k;
  }
  return result;
}

// brev: the bits in reverse order.
template <class T>
T Reverse(T a) {
  T result = 0;
  for (size_t k = 0; k < 8 * sizeof(T); k++) result |= (a >> k & 1) << (8 * sizeof(T) - 1 - k);
  return result;
}

template <class T>
T Mask(uint32_t bits) {  // the lowest ones
  return bits >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << bits) - 1);
}

// bfe: a field of `bits` bits from `first_bit` on; of signed numbers with its sign.
template <class T>
T Extract(T a, uint32_t first_bit, uint32_t bits) {
  using U = Unsigned<T>;
  constexpr uint32_t num_bits = 8 * sizeof(T);
  first_bit &= 255, bits &= 255;
  U field = first_bit < num_bits ? static_cast<U>(static_cast<U>(a) >> first_bit) : U{0};
  field &= Mask<U>(bits);
  if constexpr (std::is_signed_v<T>) {  // the sign is the field's highest bit, or the number's where that lies above
    const uint32_t sign = std::min(first_bit + bits, num_bits) - 1;
    if (bits > 0 && static_cast<U>(a) >> sign & 1)
      field |= static_cast<U>(~Mask<U>(sign >= first_bit ? sign - first_bit : 0));
  }
  return static_cast<T>(field);
}

// bfi: b, with `bits` bits from `first_bit` on replaced by the lowest ones of a.
template <class T>
T Insert(T a, T b, uint32_t first_bit, uint32_t bits) {
  first_bit &= 255, bits &= 255;
  if (first_bit >= 8 * sizeof(T)) return b;
  const T mask = static_cast<T>(Mask<T>(bits) << first_bit);
  return (b & ~mask) | (static_cast<T>(a << first_bit) & mask);
}

// dp2a: source 2 + the products of the 16-bit halves of source 0 and two bytes of source 1, the higher two with `flag`.
template <class A, class B>
const Instruction* DotProduct2(const Instruction& i, Thread& t) {
  const auto a = Get<uint32_t>(t, i.sources[0]), b = Get<uint32_t>(t, i.sources[1]) >> (i.flag ? 16 : 0);
  int64_t sum = Get<int32_t>(t, i.sources[2]);
  for (int k = 0; k < 2; k++) sum += int64_t{static_cast<A>(a >> 16 * k)} * static_cast<B>(b >> 8 * k);
  Set(t, i.destinations[0], static_cast<uint32_t>(sum));
  return &i + 1;
}

enum class Combine { kNone, kAnd, kOr, kXor };

// setp: a comparison of sources 0 and 1, combined with predicate 2.
template <class F, class T, Combine combine>
const Instruction* SetPredicate(const Instruction& i, Thread& t) {
  bool result = F{}(Get<T>(t, i.sources[0]), Get<T>(t, i.sources[1]));
  const bool operand = combine != Combine::kNone && Get<bool>(t, i.sources[2]) != i.flag;  // flag: negated
  if constexpr (combine == Combine::kAnd) result = result && operand;
  if constexpr (combine == Combine::kOr) result = result || operand;
  if constexpr (combine == Combine::kXor) result = result != operand;
  Set(t, i.destinations[0], result);
  return &i + 1;
}

// --- memory ----------------------------------------------------------------------------------------------------------

enum class Space { kGeneric, kGlobal, kShared, kLocal, kParameter };

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%#lx", static_cast<unsigned long>(value));
  return text;
}

// Throws the Fault of an access that races with `other`. is_write: that one was a write.
[[noreturn]] void FailRace(const Instruction& i, const Thread& t, const Access& other, bool is_write, bool read_only,
                           const char* memory) {
  const Block& b = *t.block;
  std::string message =
      std::string("race in ") + memory + " memory: the byte is " + (is_write ? "written" : "read") + " by ";
  message += other.phase < b.clock.block || other.other_blocks  ? "another block"
             : other.several_threads || other.thread != t.index ? "another thread"
                                                                : "the same thread";
  if (read_only) message += ", and the read-only cache may have an older value";
  Fail(i, t,
       message + ", too, lastly by thread " + std::to_string(other.thread) + " at\n" + Describe(other.instruction) +
           "\n ");
}

// Enters the access to each byte that the instruction uses. Fails if one is a race.
template <Kind kind, unsigned bytes>
void RecordAccesses(const Instruction& i, Thread& t, ByteHistory* history, const Clock& clock, const char* memory) {
  for (unsigned k = 0; k < bytes; k++) {
    if constexpr (bytes > 1)
      if (!(i.used >> k & 1)) continue;
    const Access* race = RecordAccess<kind>(&history[k], t.index, i.number, clock);
    if (race) [[unlikely]]
      FailRace(i, t, *race, race == &history[k].write, kind == Kind::kReadOnly, memory);
  }
}

// Returns the bytes that an instruction accesses. Fails if the access is outside of all arrays, misaligned or a race.
template <Space space, Kind kind, unsigned bytes>
uint8_t* Find(const Instruction& i, Thread& t) {
  const uint64_t address = (Get<uint64_t>(t, i.sources[0]) & i.address_mask) + static_cast<uint64_t>(i.offset);
  if (address % bytes) [[unlikely]]
    Fail(i, t, "misaligned access of " + std::to_string(bytes) + " bytes at " + Hex(address));
  Block& b = *t.block;
  if constexpr (space == Space::kGeneric || space == Space::kGlobal) {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(heap.begin);
    if (offset < Heap::kBytes) [[likely]] {
      for (unsigned k = 0; k < bytes; k++)
        if (!heap.allocated[offset + k] && (i.used >> k & 1)) [[unlikely]]
          Fail(i, t, "access of " + std::to_string(bytes) + " bytes at " + Hex(address) + ", outside of all arrays");
      RecordAccesses<kind, bytes>(i, t, heap.history + offset, b.clock, "global");
      return heap.begin + offset;
    }
  }
  if constexpr (space == Space::kGeneric || space == Space::kShared) {
    const uint64_t offset = address - kSharedWindow;
    for (const Range& variable : b.kernel->shared) {  // mostly one
      if (offset - variable.begin >= variable.size || offset - variable.begin + bytes > variable.size) continue;
      RecordAccesses<kind, bytes>(i, t, b.shared_history + offset, {b.clock.block, b.clock.block, b.clock.phase},
                                  "shared");
      return b.shared + offset;
    }
  }
  if constexpr (space == Space::kGeneric || space == Space::kLocal) {
    const uint64_t offset = address - kLocalWindow;
    if (offset < b.kernel->all_frame_bytes) return t.local + offset;
  }
  if constexpr (space == Space::kGeneric || space == Space::kParameter) {
    const uint64_t offset = address - kParameterWindow;
    if (kind != Kind::kWrite && kind != Kind::kAtomic && offset < b.parameter_bytes &&
        offset + bytes <= b.parameter_bytes)
      return const_cast<uint8_t*>(b.parameters) + offset;
  }
  Fail(i, t,
       "access of " + std::to_string(bytes) + " bytes at " + Hex(address) + ", which is no address of this memory");
}

// ld of n values of type T: the address is source 0, the values go to the destinations.
template <Space space, Kind kind, class T, int n>
const Instruction* Load(const Instruction& i, Thread& t) {
  const uint8_t* bytes = Find<space, kind, n * sizeof(T)>(i, t);
  for (int k = 0; k < n; k++) {
    T value;
    std::memcpy(&value, bytes + static_cast<size_t>(k) * sizeof(T), sizeof value);
    Set(t, i.destinations[k], value);
  }
  return &i + 1;
}

// st of n values of type T: the address is source 0, the values are the sources from 1 on.
template <Space space, Kind kind, class T, int n>
const Instruction* Store(const Instruction& i, Thread& t) {
  uint8_t* bytes = Find<space, kind, n * sizeof(T)>(i, t);
  for (int k = 0; k < n; k++) {
    const T value = Get<T>(t, i.sources[1 + k]);
    std::memcpy(bytes + static_cast<size_t>(k) * sizeof(T), &value, sizeof value);
  }
  return &i + 1;
}

// ld of n values of a variable in the frame, such as a parameter of a function, at i.offset.
template <class T, int n>
const Instruction* LoadFrame(const Instruction& i, Thread& t) {
  for (int k = 0; k < n; k++) {
    T value;
    std::memcpy(&value, t.memory + i.offset + static_cast<size_t>(k) * sizeof(T), sizeof value);
    Set(t, i.destinations[k], value);
  }
  return &i + 1;
}
// st of n values to a variable in the frame, at i.offset. The values are the sources from 1 on, as in Store.
template <class T, int n>
const Instruction* StoreFrame(const Instruction& i, Thread& t) {
  for (int k = 0; k < n; k++) {
    const T value = Get<T>(t, i.sources[1 + k]);
    std::memcpy(t.memory + i.offset + static_cast<size_t>(k) * sizeof(T), &value, sizeof value);
  }
  return &i + 1;
}
// The generic address of a variable in the frame, which is in the window of local memory.
const Instruction* FrameAddress(const Instruction& i, Thread& t) {
  Set(t, i.destinations[0], kLocalWindow + static_cast<uint64_t>(t.memory - t.local) + static_cast<uint64_t>(i.offset));
  return &i + 1;
}

// atom (with a result, the old value) and red: the memory becomes F(old value, source 1, source 2).
template <Space space, class T, class F, bool has_result>
const Instruction* Atomic(const Instruction& i, Thread& t) {
  uint8_t* bytes = Find<space, Kind::kAtomic, sizeof(T)>(i, t);
  T old_value;
  std::memcpy(&old_value, bytes, sizeof old_value);
  const T new_value = F{}(old_value, Get<T>(t, i.sources[1]), Get<T>(t, i.sources[2]));
  std::memcpy(bytes, &new_value, sizeof new_value);
  if constexpr (has_result) Set(t, i.destinations[0], old_value);
  return &i + 1;
}

// --- control ---------------------------------------------------------------------------------------------------------

const Instruction* Jump(const Instruction& i, Thread&) { return i.target; }

const Instruction* Next(const Instruction& i, Thread&) { return &i + 1; }

// call: a new frame behind the caller's, with copies of the arguments.
const Instruction* EnterFunction(const Instruction& i, Thread& t) {
  const Call& call = *i.call;
  const Frame& caller = t.frames.back();
  const Frame frame{call.callee, &i, caller.registers + caller.function->registers,
                    caller.memory + caller.function->frame_bytes};
  for (const Call::Copy& c : call.arguments) std::memcpy(frame.memory + c.to, caller.memory + c.from, c.size);
  frame.registers[kTrue] = 1;  // the guard of instructions without one
  t.frames.push_back(frame);
  t.Enter(frame);
  return call.callee->code.data();
}

// Ends a thread's run at an instruction.
const Instruction* Stop(Thread& t, const Instruction* instruction, Thread::State state) {
  t.at = instruction;
  t.state = state;
  return nullptr;
}

// ret: back to the caller, with copies of the results. The kernel's own ends the thread.
const Instruction* Return(const Instruction& i, Thread& t) {
  if (t.frames.size() == 1) return Stop(t, &i, Thread::kEnded);
  const Frame frame = t.frames.back();
  t.frames.pop_back();
  for (const Call::Copy& c : frame.call->call->results)
    std::memcpy(t.frames.back().memory + c.to, frame.memory + c.from, c.size);
  t.Enter(t.frames.back());
  return frame.call + 1;
}

const Instruction* Exit(const Instruction& i, Thread& t) { return Stop(t, &i, Thread::kEnded); }
const Instruction* Barrier(const Instruction& i, Thread& t) { return Stop(t, &i, Thread::kAtBarrier); }
const Instruction* WaitForWarp(const Instruction& i, Thread& t) { return Stop(t, &i, Thread::kInWarp); }

// mov from a special register: %tid.x, %ctaid.x, %ntid.x, %nctaid.x, %laneid, %warpid, and those that are always 0
// or 1.
template <int index>
const Instruction* Special(const Instruction& i, Thread& t) {
  const uint32_t values[] = {
      t.index, t.block->index, kBlockThreads, t.block->blocks, t.index % kWarpThreads, t.index / kWarpThreads, 0, 1};
  Set(t, i.destinations[0], values[index]);
  return &i + 1;
}

// --- exchange between the threads of a warp --------------------------------------------------------------------------
// These are WarpHandlers. They run once for all threads of a warp.

// Fails unless the mask of each thread has all threads of the warp.
void CheckMask(const Instruction& i, Thread* warp, Source mask) {
  for (unsigned k = 0; k < kWarpThreads; k++)
    if (Get<uint32_t>(warp[k], mask) != ~uint32_t{0}) Fail(i, warp[k], "not all threads of the warp are in the mask");
}

enum class Shuffle { kUp, kDown, kXor, kIndex };

// shfl: each thread gets source 0 of another one, by source 1, or keeps its own if that is outside of its segment
// (source 2). Destination 1, if any, tells which.
template <Shuffle mode>
void ShuffleWarp(const Instruction& i, Thread* warp) {
  CheckMask(i, warp, i.sources[3]);
  uint32_t values[kWarpThreads];
  for (unsigned k = 0; k < kWarpThreads; k++) values[k] = Get<uint32_t>(warp[k], i.sources[0]);
  for (unsigned k = 0; k < kWarpThreads; k++) {
    Thread& t = warp[k];
    // The operand `c` of shfl: the limit in bits 0-4, the mask of the segment in bits 8-12.
    const uint32_t distance = Get<uint32_t>(t, i.sources[1]) & 31, clamp = Get<uint32_t>(t, i.sources[2]);
    const auto segment = static_cast<int>(clamp >> 8 & 31), limit = static_cast<int>(clamp & 31);
    const int lane = static_cast<int>(k), first = lane & segment, last = first | (limit & ~segment);
    const int source_lane = mode == Shuffle::kUp     ? lane - static_cast<int>(distance)
                            : mode == Shuffle::kDown ? lane + static_cast<int>(distance)
                            : mode == Shuffle::kXor  ? lane ^ static_cast<int>(distance)
                                                     : first | (static_cast<int>(distance) & ~segment);
    const bool is_inside = mode == Shuffle::kUp ? source_lane >= last : source_lane <= last;
    Set(t, i.destinations[0], values[is_inside ? source_lane : lane]);
    // 0: none, because register 0 is never a destination.
    if (i.destinations[1]) Set(t, i.destinations[1], is_inside);
  }
}

// redux: all threads get F of all their values.
template <class T, class F>
void ReduceWarp(const Instruction& i, Thread* warp) {
  CheckMask(i, warp, i.sources[1]);
  T result = Get<T>(warp[0], i.sources[0]);
  for (unsigned k = 1; k < kWarpThreads; k++) result = F{}(result, Get<T>(warp[k], i.sources[0]));
  for (unsigned k = 0; k < kWarpThreads; k++) Set(warp[k], i.destinations[0], result);
}

// vote.ballot: all threads get a word with a bit for each thread's predicate.
void Ballot(const Instruction& i, Thread* warp) {
  CheckMask(i, warp, i.sources[1]);
  uint32_t votes = 0;
  for (unsigned k = 0; k < kWarpThreads; k++)
    votes |= static_cast<uint32_t>(Get<bool>(warp[k], i.sources[0]) != i.flag) << k;
  for (unsigned k = 0; k < kWarpThreads; k++) Set(warp[k], i.destinations[0], votes);
}

// vote.all, vote.any: whether all predicates, or some, are true.
template <bool all>
void Vote(const Instruction& i, Thread* warp) {
  CheckMask(i, warp, i.sources[1]);
  bool result = all;
  for (unsigned k = 0; k < kWarpThreads; k++) {
    const bool vote = Get<bool>(warp[k], i.sources[0]) != i.flag;
    result = all ? result && vote : result || vote;
  }
  for (unsigned k = 0; k < kWarpThreads; k++) Set(warp[k], i.destinations[0], result);
}

// --- decoding --------------------------------------------------------------------------------------------------------

// Each of these calls f with a value of the type, which returns a handler, and returns null for other types.
template <class F>
Handler WithInteger(Type type, F f) {
  if (type.kind == Type::kUnsigned) {
    if (type.bytes == 2) return f(uint16_t{});
    if (type.bytes == 4) return f(uint32_t{});
    if (type.bytes == 8) return f(uint64_t{});
  } else if (type.kind == Type::kSigned) {
    if (type.bytes == 2) return f(int16_t{});
    if (type.bytes == 4) return f(int32_t{});
    if (type.bytes == 8) return f(int64_t{});
  }
  return nullptr;
}
template <class F>
Handler WithFloat(Type type, F f) {
  if (type.kind != Type::kFloat) return nullptr;
  return type.bytes == 4 ? f(float{}) : type.bytes == 8 ? f(double{}) : nullptr;
}
template <class F>
Handler WithNumber(Type type, F f) {
  return type.kind == Type::kFloat ? WithFloat(type, f) : WithInteger(type, f);
}
// Bits without meaning.
template <class F>
Handler WithBits(Type type, F f) {
  if (type.kind == Type::kPredicate) return f(bool{});
  if (type.bytes == 1) return type.kind == Type::kSigned ? f(int8_t{}) : f(uint8_t{});
  if (type.kind == Type::kFloat) type.kind = Type::kUnsigned;
  return WithInteger(type, f);
}

// Calls f with the kind of memory that the statement names, as a constant; kGeneric if it names none.
template <class F>
Handler WithSpace(Statement* s, F f) {
  if (s->Take("global")) return f(std::integral_constant<Space, Space::kGlobal>{});
  if (s->Take("shared")) return f(std::integral_constant<Space, Space::kShared>{});
  if (s->Take("local")) return f(std::integral_constant<Space, Space::kLocal>{});
  if (s->Take("param")) return f(std::integral_constant<Space, Space::kParameter>{});
  return f(std::integral_constant<Space, Space::kGeneric>{});
}

// Chooses the handler of one statement. Each function below returns the handler for its kind of statements, or null. It
// takes the operands in their order and the modifiers that it knows. If any are left at the end, the statement is
// unknown.
class Decoder {
 public:
  Decoder(Statement* statement, Scope* scope, Instruction* instruction)
      : s_(*statement), scope_(*scope), i_(*instruction) {}

  // Sets the instruction's handler, operands and offset. Throws a Fault if the statement is unknown.
  void Run() {
    // The types are taken first: "cvt.f32.u8" has `second_type` f32 and `type` u8.
    for (const std::string_view modifier : s_.modifiers)
      if (const Type type = TypeOf(modifier); type.kind != Type::kNone) s_.second_type = s_.type, s_.type = type;
    std::erase_if(s_.modifiers, [](std::string_view m) { return TypeOf(m).kind != Type::kNone; });
    i_.run = Control();
    if (!i_.run) i_.run = Memory();
    if (!i_.run) i_.run = Exchange();
    if (!i_.run) i_.run = Convert();
    if (!i_.run) i_.run = Arithmetic();
    if (!i_.run || !s_.modifiers.empty() || operand_index_ != s_.operands.size())
      throw Fault(std::string(s_.text) + ": unknown");
  }

 private:
  // Operands, from the first to the last.
  std::string_view Operand() {
    if (operand_index_ == s_.operands.size()) throw Fault(std::string(s_.text) + ": an operand is missing");
    return s_.operands[operand_index_++];
  }
  // The next operand as destination 0; the next ones as sources 0, 1, ... of these types.
  void Destination() { i_.destinations[0] = scope_.Register(Operand()); }
  void Sources(std::initializer_list<Type> types) {
    int k = 0;
    for (const Type type : types) i_.sources[k++] = scope_.Value(Operand(), type);
  }
  // The next operand as source k: a predicate, perhaps negated (`flag`).
  void Predicate(int k) {
    std::string_view text = Operand();
    i_.flag = text[0] == '!';
    i_.sources[k] = scope_.Value(Trim(text.substr(i_.flag ? 1 : 0)), {Type::kPredicate, /*bytes=*/1});
  }
  // The registers of a vector "{a, b}"; of another operand, that alone.
  static std::vector<std::string_view> VectorParts(std::string_view text) {
    return text[0] == '{' ? Split(text.substr(1, text.size() - 2), ',') : std::vector{text};
  }
  static constexpr Type kU32{Type::kUnsigned, /*bytes=*/4};

  // Jumps, calls, barriers and fences. The reader has set `target` and `call`.
  Handler Control() {
    if (s_.name == "bra") {
      s_.Take("uni");
      return Jump;
    }
    if (s_.name == "call") {
      s_.Take("uni");
      return EnterFunction;
    }
    if (s_.name == "ret") {
      s_.Take("uni");
      return Return;
    }
    if (s_.name == "exit") return Exit;
    if ((s_.name == "bar" || s_.name == "barrier") && s_.Take("sync")) {
      s_.Take("aligned");
      if (Operand() != "0") return nullptr;  // the number of the barrier
      return Barrier;
    }
    if (s_.name == "membar" || s_.name == "fence") {  // no effect, because all accesses are in order here
      s_.modifiers.clear();
      return Next;
    }
    return nullptr;
  }

  // Accesses to memory, and conversions between its kinds of addresses, which are the same numbers here.
  Handler Memory() {
    if (s_.name == "ld" || s_.name == "st") return LoadOrStore(s_.name == "ld");
    if (s_.name == "atom" || s_.name == "red") return MakeAtomic(s_.name == "atom");
    if (s_.name == "cvta") {
      for (std::string_view m : {"to", "global", "shared", "local", "param"}) s_.Take(m);
      Destination();
      Sources({s_.type});
      return Make<uint64_t, uint64_t>([](uint64_t a) { return a; });
    }
    return nullptr;
  }

  // "ld.global.v2.u32 {a, b}, [address]", "st.global.u32 [address], a": one, two or four values.
  Handler LoadOrStore(bool is_load) {
    const int n = s_.Take("v2") ? 2 : s_.Take("v4") ? 4 : 1;
    const bool read_only = s_.Take("nc");
    const bool is_atomic = s_.Take("volatile") || s_.Take("relaxed");
    // The default order, and the scope: they make no difference here.
    for (std::string_view m : {"weak", "gpu", "cta", "sys"}) s_.Take(m);
    std::string_view address = is_load ? std::string_view() : Operand();
    const auto parts = VectorParts(Operand());
    if (static_cast<int>(parts.size()) != n) return nullptr;
    for (size_t k = 0; k < parts.size(); k++) {
      if (is_load)
        i_.destinations[k] = scope_.Register(parts[k]);
      else  // source 0 is the address
        i_.sources[1 + k] = scope_.Value(parts[k], s_.type);
    }
    if (is_load) address = Operand();
    // Calls f with a value of the type and the number of values. A vector has at most 16 bytes.
    const auto with_length = [&](auto f) {
      return WithBits(s_.type, [&](auto z) -> Handler {
        using T = decltype(z);
        if (n == 1) return f(z, std::integral_constant<int, 1>{});
        if (n == 2) return f(z, std::integral_constant<int, 2>{});
        if constexpr (sizeof(T) <= 4) return f(z, std::integral_constant<int, 4>{});
        return nullptr;
      });
    };
    if (scope_.Address(address, &i_)) {  // a variable in the frame
      s_.Take("param");
      s_.Take("local");
      return with_length([&](auto z, auto length) -> Handler {
        return is_load ? &LoadFrame<decltype(z), length()> : &StoreFrame<decltype(z), length()>;
      });
    }
    return WithSpace(&s_, [&](auto space) {
      return with_length([&](auto z, auto length) -> Handler {
        using T = decltype(z);
        if (!is_load && is_atomic) return &Store<space(), Kind::kAtomic, T, length()>;
        if (!is_load) return &Store<space(), Kind::kWrite, T, length()>;
        if (is_atomic) return &Load<space(), Kind::kAtomicRead, T, length()>;
        if (read_only) return &Load<space(), Kind::kReadOnly, T, length()>;
        return &Load<space(), Kind::kRead, T, length()>;
      });
    });
  }

  // "atom.global.add.u32 old, [address], value", "red.global.add.u32 [address], value"; cas has two values.
  Handler MakeAtomic(bool has_result) {
    for (std::string_view m : {"relaxed", "gpu", "cta", "sys"}) s_.Take(m);
    if (has_result) Destination();
    if (scope_.Address(Operand(), &i_)) return nullptr;
    i_.sources[1] = i_.sources[2] = scope_.Value(Operand(), s_.type);
    return WithSpace(&s_, [&](auto space) {
      return WithInteger(s_.type, [&](auto z) -> Handler {
        using T = decltype(z);
        const auto make = [&](auto f) -> Handler {
          return has_result ? &Atomic<space(), T, decltype(f), true> : &Atomic<space(), T, decltype(f), false>;
        };
        if (s_.Take("add")) return make([](T a, T b, T) { return Add(a, b); });
        if (s_.Take("min")) return make([](T a, T b, T) { return std::min(a, b); });
        if (s_.Take("max")) return make([](T a, T b, T) { return std::max(a, b); });
        if (s_.Take("and")) return make([](T a, T b, T) { return static_cast<T>(a & b); });
        if (s_.Take("or")) return make([](T a, T b, T) { return static_cast<T>(a | b); });
        if (s_.Take("exch")) return make([](T, T b, T) { return b; });
        if (s_.Take("cas")) {
          i_.sources[2] = scope_.Value(Operand(), s_.type);
          return make([](T a, T b, T c) { return a == b ? c : a; });
        }
        return nullptr;
      });
    });
  }

  // Exchanges in a warp: sets `run_warp`, and returns the handler by which a thread waits.
  Handler Exchange() {
    if (s_.name != "shfl" && s_.name != "vote" && s_.name != "redux") return nullptr;
    if (!s_.Take("sync")) return nullptr;
    if (s_.name == "shfl") {
      const std::string_view destination = Operand();  // "value" or "value|predicate"
      const size_t bar = destination.find('|');
      i_.destinations[0] = scope_.Register(Trim(destination.substr(0, bar)));
      if (bar != destination.npos) i_.destinations[1] = scope_.Register(Trim(destination.substr(bar + 1)));
      Sources({kU32, kU32, kU32, kU32});
      if (s_.Take("up"))
        i_.run_warp = ShuffleWarp<Shuffle::kUp>;
      else if (s_.Take("down"))
        i_.run_warp = ShuffleWarp<Shuffle::kDown>;
      else if (s_.Take("bfly"))
        i_.run_warp = ShuffleWarp<Shuffle::kXor>;
      else if (s_.Take("idx"))
        i_.run_warp = ShuffleWarp<Shuffle::kIndex>;
    } else if (s_.name == "vote") {
      Destination();
      Predicate(0);
      i_.sources[1] = scope_.Value(Operand(), kU32);
      if (s_.Take("ballot"))
        i_.run_warp = Ballot;
      else if (s_.Take("all"))
        i_.run_warp = Vote<true>;
      else if (s_.Take("any"))
        i_.run_warp = Vote<false>;
    } else {
      Destination();
      Sources({s_.type, kU32});
      WithInteger(s_.type, [&](auto z) -> Handler {
        using T = decltype(z);
        const auto set = [&](auto f) { i_.run_warp = ReduceWarp<T, decltype(f)>; };
        if (s_.Take("add")) set([](T a, T b) { return Add(a, b); });
        if (s_.Take("min")) set([](T a, T b) { return std::min(a, b); });
        if (s_.Take("max")) set([](T a, T b) { return std::max(a, b); });
        if (s_.Take("and")) set([](T a, T b) { return static_cast<T>(a & b); });
        if (s_.Take("or")) set([](T a, T b) { return static_cast<T>(a | b); });
        if (s_.Take("xor")) set([](T a, T b) { return static_cast<T>(a ^ b); });
        return nullptr;
      });
    }
    return i_.run_warp ? WaitForWarp : nullptr;
  }

  // mov, and cvt between integers and floats: rounds to nearest even (rn), or first to a whole number by rni (nearest
  // even), rzi (towards zero), rmi (down) or rpi (up).
  Handler Convert() {
    if (s_.name == "mov") return Move();
    if (s_.name != "cvt") return nullptr;
    Destination();
    const Type to = s_.second_type, from = s_.type;
    Sources({from});
    if (to.kind == Type::kFloat && from.kind == Type::kFloat) {
      if (from.bytes == 2 && to.bytes == 4)
        return Make<float, uint16_t>([](uint16_t a) { return static_cast<float>(std::bit_cast<_Float16>(a)); });
      if (from.bytes == 4 && to.bytes == 2 && s_.Take("rn"))
        return Make<uint16_t, float>([](float a) { return std::bit_cast<uint16_t>(static_cast<_Float16>(a)); });
      const auto make = [&](auto round) {
        return WithFloat(to, [&](auto d) {
          return WithFloat(from, [&](auto z) {
            using D = decltype(d);
            using T = decltype(z);
            return Make<D, T>([](T a) { return static_cast<D>(decltype(round){}(a)); });
          });
        });
      };
      if (s_.Take("rni")) return make([](auto a) { return std::nearbyint(a); });
      if (s_.Take("rzi")) return make([](auto a) { return std::trunc(a); });
      if (s_.Take("rmi")) return make([](auto a) { return std::floor(a); });
      if (s_.Take("rpi")) return make([](auto a) { return std::ceil(a); });
      s_.Take("rn");
      return make([](auto a) { return a; });
    }
    if (to.kind == Type::kFloat) {
      s_.Take("rn");
      return WithFloat(to, [&](auto d) {
        return WithBytes(from, [](auto z) {
          using D = decltype(d);
          using T = decltype(z);
          return Make<D, T>([](T a) { return static_cast<D>(a); });
        });
      });
    }
    if (from.kind == Type::kFloat) {
      const auto make = [&](auto round) {
        return WithBytes(to, [&](auto d) {
          return WithFloat(from, [&](auto z) {
            using D = decltype(d);
            using T = decltype(z);
            return Make<D, T>([](T a) { return ToInteger<D>(decltype(round){}(a)); });
          });
        });
      };
      if (s_.Take("rni")) return make([](auto a) { return std::nearbyint(a); });
      if (s_.Take("rzi")) return make([](auto a) { return std::trunc(a); });
      if (s_.Take("rmi")) return make([](auto a) { return std::floor(a); });
      if (s_.Take("rpi")) return make([](auto a) { return std::ceil(a); });
      return nullptr;
    }
    const bool saturates = s_.Take("sat");
    return WithBytes(to, [&](auto d) {
      return WithBytes(from, [&](auto z) {
        using D = decltype(d);
        using T = decltype(z);
        if (!saturates) return Make<D, T>([](T a) { return static_cast<D>(a); });
        return Make<D, T>([](T a) {
          return std::in_range<D>(a) ? static_cast<D>(a)
                 : a < 0             ? std::numeric_limits<D>::min()
                                     : std::numeric_limits<D>::max();
        });
      });
    });
  }
  // Integers of one byte, too.
  template <class F>
  static Handler WithBytes(Type type, F f) {
    if (type.bytes == 1) return type.kind == Type::kSigned ? f(int8_t{}) : f(uint8_t{});
    return WithInteger(type, f);
  }

  // mov: of a register, a special register, an address in the frame, or between a vector and a wider register.
  Handler Move() {
    const std::string_view to = Operand(), from = Operand();
    const auto parts = VectorParts(to[0] == '{' ? to : from);
    if (to[0] == '{') {  // unpacks
      i_.sources[0] = scope_.Value(from, s_.type);
      for (size_t k = 0; k < parts.size(); k++) i_.destinations[k] = scope_.Register(parts[k]);
      return Packing(parts.size(), /*pack=*/false);
    }
    i_.destinations[0] = scope_.Register(to);
    if (from[0] == '{') {
      for (size_t k = 0; k < parts.size(); k++) i_.sources[k] = scope_.Value(parts[k], s_.type);
      return Packing(parts.size(), /*pack=*/true);
    }
    if (from[0] == '%') {
      if (from == "%tid.x") return Special<0>;
      if (from == "%ctaid.x") return Special<1>;
      if (from == "%ntid.x") return Special<2>;
      if (from == "%nctaid.x") return Special<3>;
      if (from == "%laneid") return Special<4>;
      if (from == "%warpid") return Special<5>;
      if (from == "%tid.y" || from == "%tid.z" || from == "%ctaid.y" || from == "%ctaid.z") return Special<6>;
      if (from == "%ntid.y" || from == "%ntid.z" || from == "%nctaid.y" || from == "%nctaid.z") return Special<7>;
    }
    if (const Range* place = scope_.InFrame(from)) {
      i_.offset = place->begin;
      return FrameAddress;
    }
    i_.sources[0] = scope_.Value(from, s_.type);
    return WithBits(s_.type, [](auto z) {
      using T = decltype(z);
      return Make<T, T>([](T a) { return a; });
    });
  }

  // Joins n values to one of n times the size, the first one lowest, or (not `pack`) divides it.
  template <class T, int n, bool pack>
  static const Instruction* Pack(const Instruction& i, Thread& t) {
    constexpr int bits = static_cast<int>(8 * sizeof(T));
    if constexpr (pack) {
      uint64_t packed = 0;
      for (int k = 0; k < n; k++) packed |= uint64_t{Get<T>(t, i.sources[k])} << bits * k;
      Set(t, i.destinations[0], packed);
    } else {
      const auto packed = Get<uint64_t>(t, i.sources[0]);
      for (int k = 0; k < n; k++) Set(t, i.destinations[k], static_cast<T>(packed >> bits * k));
    }
    return &i + 1;
  }
  // The handler Pack for n values; null for sizes that don't occur.
  Handler Packing(size_t n, bool pack) {
    // The statement's type is that of the wide register.
    const size_t bytes = s_.type.bytes / n;
    if (n == 2 && bytes == 2) return pack ? &Pack<uint16_t, 2, true> : &Pack<uint16_t, 2, false>;
    if (n == 2 && bytes == 4) return pack ? &Pack<uint32_t, 2, true> : &Pack<uint32_t, 2, false>;
    if (n == 4 && bytes == 1) return pack ? &Pack<uint8_t, 4, true> : &Pack<uint8_t, 4, false>;
    if (n == 4 && bytes == 2) return pack ? &Pack<uint16_t, 4, true> : &Pack<uint16_t, 4, false>;
    return nullptr;
  }

  // Arithmetic of numbers; Comparison, Product and Bits have those with modifiers of their own.
  Handler Arithmetic() {
    const Type type = s_.type;
    const std::string_view name = s_.name;
    if (type.kind == Type::kFloat) s_.Take("rn");  // other roundings are unknown
    if (name == "setp") return Comparison();
    Destination();
    if ((name == "min" || name == "max") && s_.Take("f16x2")) {
      Sources({kU32, kU32});
      const auto make = [](auto f) { return Make<uint32_t, uint32_t, uint32_t>(f); };
      return name == "min" ? make([](uint32_t a, uint32_t b) { return ApplyToHalves(a, b, MinNumber<float>); })
                           : make([](uint32_t a, uint32_t b) { return ApplyToHalves(a, b, MaxNumber<float>); });
    }
    if (name == "add" || name == "sub" || name == "min" || name == "max") {
      Sources({type, type});
      return WithNumber(type, [&](auto z) {
        using T = decltype(z);
        if constexpr (std::is_floating_point_v<T>) {
          if (name == "add") return Make<T, T, T>([](T a, T b) { return a + b; });
          if (name == "sub") return Make<T, T, T>([](T a, T b) { return a - b; });
          if (name == "min") return Make<T, T, T>([](T a, T b) { return MinNumber(a, b); });
          return Make<T, T, T>([](T a, T b) { return MaxNumber(a, b); });
        } else {
          if (name == "add") return Make<T, T, T>([](T a, T b) { return Add(a, b); });
          if (name == "sub") return Make<T, T, T>([](T a, T b) { return Subtract(a, b); });
          if (name == "min") return Make<T, T, T>([](T a, T b) { return std::min(a, b); });
          return Make<T, T, T>([](T a, T b) { return std::max(a, b); });
        }
      });
    }
    if (name == "mul" || name == "mad") return Product(name == "mad");
    if (name == "fma") {
      Sources({type, type, type});
      return WithFloat(type, [](auto z) {
        using T = decltype(z);
        return Make<T, T, T, T>([](T a, T b, T c) { return std::fma(a, b, c); });
      });
    }
    if (name == "div" || name == "rem") {
      Sources({type, type});
      return WithNumber(type, [&](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (std::is_floating_point_v<T>)
          return name == "div" ? Make<T, T, T>([](T a, T b) { return a / b; }) : nullptr;
        else
          return name == "div" ? &Divide<T, false> : &Divide<T, true>;
      });
    }
    if (name == "rcp" || name == "sqrt") {
      Sources({type});
      return WithFloat(type, [&](auto z) {
        using T = decltype(z);
        return name == "rcp" ? Make<T, T>([](T a) { return T{1} / a; }) : Make<T, T>([](T a) { return std::sqrt(a); });
      });
    }
    if (name == "abs" || name == "neg") {
      Sources({type});
      return WithNumber(type, [&](auto z) {
        using T = decltype(z);
        if constexpr (std::is_floating_point_v<T>)
          return name == "abs" ? Make<T, T>([](T a) { return std::fabs(a); }) : Make<T, T>([](T a) { return -a; });
        else
          return name == "abs" ? Make<T, T>([](T a) { return a < 0 ? Subtract(T{0}, a) : a; })
                               : Make<T, T>([](T a) { return Subtract(T{0}, a); });
      });
    }
    if (name == "copysign") {
      Sources({type, type});
      return WithFloat(type, [](auto z) {
        using T = decltype(z);
        return Make<T, T, T>([](T a, T b) { return std::copysign(b, a); });
      });
    }
    if (name == "selp") {
      Sources({type, type, {Type::kPredicate, 1}});
      return WithBits(type, [](auto z) {
        using T = decltype(z);
        return Make<T, T, T, bool>([](T a, T b, bool c) { return c ? a : b; });
      });
    }
    return Bits();
  }

  // mul, and mad, which adds a third source: the lower half of the product, its upper half (hi), or all of it (wide).
  Handler Product(bool adds) {
    const Type type = s_.type;
    const bool is_wide = s_.Take("wide"), is_high = s_.Take("hi");
    s_.Take("lo");
    Sources({type, type});
    if (adds) i_.sources[2] = scope_.Value(Operand(), type);
    return WithNumber(type, [&](auto z) -> Handler {
      using T = decltype(z);
      if constexpr (std::is_floating_point_v<T>) {
        return adds ? nullptr : Make<T, T, T>([](T a, T b) { return a * b; });
      } else {
        using W = Wide<T>;
        if (is_high) {
          if (adds) return nullptr;
          return Make<T, T, T>(
              [](T a, T b) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> 8 * sizeof(T)); });
        }
        if (is_wide) {
          if constexpr (sizeof(T) <= 4) {
            if (!adds) return Make<W, T, T>([](T a, T b) { return Multiply<W>(a, b); });
            return Make<W, T, T, W>([](T a, T b, W c) { return Add<W>(Multiply<W>(a, b), c); });
          }
          return nullptr;
        }
        if (!adds) return Make<T, T, T>([](T a, T b) { return Multiply(a, b); });
        return Make<T, T, T, T>([](T a, T b, T c) { return Add(Multiply(a, b), c); });
      }
    });
  }

  // Logic, shifts, fields of bits, permutations of bytes, counts of bits, and dp2a.
  Handler Bits() {
    const Type type = s_.type;
    const std::string_view name = s_.name;
    if (name == "and" || name == "or" || name == "xor") {
      Sources({type, type});
      return WithBits(type, [&](auto z) {
        using T = decltype(z);
        if (name == "and") return Make<T, T, T>([](T a, T b) { return static_cast<T>(a & b); });
        if (name == "or") return Make<T, T, T>([](T a, T b) { return static_cast<T>(a | b); });
        return Make<T, T, T>([](T a, T b) { return static_cast<T>(a ^ b); });
      });
    }
    if (name == "not") {
      Sources({type});
      return WithBits(type, [](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (std::is_same_v<T, bool>)
          return Make<T, T>([](T a) { return !a; });
        else
          return Make<T, T>([](T a) { return static_cast<T>(~a); });
      });
    }
    if (name == "shl" || name == "shr") {
      Sources({type, kU32});
      return WithInteger(type, [&](auto z) {
        using T = decltype(z);
        constexpr uint32_t bits = 8 * sizeof(T);
        if (name == "shl")
          return Make<T, T, uint32_t>(
              [](T a, uint32_t n) { return n < bits ? static_cast<T>(static_cast<uint64_t>(a) << n) : T{0}; });
        return Make<T, T, uint32_t>([](T a, uint32_t n) {
          return n < bits ? static_cast<T>(a >> n) : std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
        });
      });
    }
    if (name == "shf") {
      Sources({kU32, kU32, kU32});
      if (!s_.Take("wrap")) return nullptr;
      const auto make = [](auto f) { return Make<uint32_t, uint32_t, uint32_t, uint32_t>(f); };
      if (s_.Take("l"))
        return make([](uint32_t low, uint32_t high, uint32_t n) {
          return static_cast<uint32_t>((uint64_t{high} << 32 | low) << (n & 31) >> 32);
        });
      if (s_.Take("r"))
        return make([](uint32_t low, uint32_t high, uint32_t n) {
          return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (n & 31));
        });
      return nullptr;
    }
    if (name == "prmt") {
      Sources({kU32, kU32, kU32});
      return Make<uint32_t, uint32_t, uint32_t, uint32_t>(
          [](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); });
    }
    if (name == "bfe") {
      Sources({type, kU32, kU32});
      return WithInteger(type, [](auto z) {
        using T = decltype(z);
        return Make<T, T, uint32_t, uint32_t>(
            [](T a, uint32_t first_bit, uint32_t bits) { return Extract(a, first_bit, bits); });
      });
    }
    if (name == "bfi") {
      Sources({type, type, kU32, kU32});
      return WithInteger(type, [](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (sizeof(T) == 2 || std::is_signed_v<T>)
          return nullptr;
        else
          return Make<T, T, T, uint32_t, uint32_t>(
              [](T a, T b, uint32_t first_bit, uint32_t bits) { return Insert(a, b, first_bit, bits); });
      });
    }
    if (name == "popc" || name == "clz" || name == "bfind" || name == "brev") {
      Sources({type});
      const bool is_shift = s_.Take("shiftamt");
      return WithInteger(type, [&](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (std::is_signed_v<T> || sizeof(T) == 2) {
          return nullptr;
        } else {
          if (name == "popc") return Make<uint32_t, T>([](T a) { return static_cast<uint32_t>(std::popcount(a)); });
          if (name == "brev") return Make<T, T>([](T a) { return Reverse(a); });
          if (name == "clz") return Make<uint32_t, T>([](T a) { return static_cast<uint32_t>(std::countl_zero(a)); });
          if (is_shift)
            return Make<uint32_t, T>([](T a) { return a ? static_cast<uint32_t>(std::countl_zero(a)) : ~uint32_t{0}; });
          return Make<uint32_t, T>([](T a) { return static_cast<uint32_t>(std::bit_width(a)) - 1; });
        }
      });
    }
    if (name == "dp2a") {
      i_.flag = s_.Take("hi");
      s_.Take("lo");
      Sources({kU32, kU32, kU32});
      if (s_.second_type.kind == Type::kSigned) {
        return type.kind == Type::kSigned ? &DotProduct2<int16_t, int8_t> : &DotProduct2<int16_t, uint8_t>;
      }
      return type.kind == Type::kSigned ? &DotProduct2<uint16_t, int8_t> : &DotProduct2<uint16_t, uint8_t>;
    }
    return nullptr;
  }

  // setp, such as "setp.lt.and.f32 p, a, b, q". Comparisons of floats with names that end in u also hold
  // if one of the two is NaN.
  Handler Comparison() {
    const Type type = s_.type;
    const Combine combine = s_.Take("and")   ? Combine::kAnd
                            : s_.Take("or")  ? Combine::kOr
                            : s_.Take("xor") ? Combine::kXor
                                             : Combine::kNone;
    Destination();
    Sources({type, type});
    if (combine != Combine::kNone) Predicate(2);
    return WithNumber(type, [&](auto z) -> Handler {
      using T = decltype(z);
      const auto make = [&](auto f) -> Handler {
        using F = decltype(f);
        switch (combine) {
          case Combine::kAnd:
            return &SetPredicate<F, T, Combine::kAnd>;
          case Combine::kOr:
            return &SetPredicate<F, T, Combine::kOr>;
          case Combine::kXor:
            return &SetPredicate<F, T, Combine::kXor>;
          default:
            return &SetPredicate<F, T, Combine::kNone>;
        }
      };
      if constexpr (std::is_floating_point_v<T>) {
        if (s_.Take("ne")) return make([](T a, T b) { return a < b || a > b; });
        if (s_.Take("equ")) return make([](T a, T b) { return !(a < b || a > b); });
        if (s_.Take("neu")) return make([](T a, T b) { return a != b; });
        if (s_.Take("ltu")) return make([](T a, T b) { return !(a >= b); });
        if (s_.Take("leu")) return make([](T a, T b) { return !(a > b); });
        if (s_.Take("gtu")) return make([](T a, T b) { return !(a <= b); });
        if (s_.Take("geu")) return make([](T a, T b) { return !(a < b); });
        if (s_.Take("num")) return make([](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
        if (s_.Take("nan")) return make([](T a, T b) { return std::isnan(a) || std::isnan(b); });
      } else {
        if (s_.Take("ne")) return make([](T a, T b) { return a != b; });
      }
      if (s_.Take("eq")) return make([](T a, T b) { return a == b; });
      if (s_.Take("lt") || s_.Take("lo")) return make([](T a, T b) { return a < b; });
      if (s_.Take("le") || s_.Take("ls")) return make([](T a, T b) { return a <= b; });
      if (s_.Take("gt") || s_.Take("hi")) return make([](T a, T b) { return a > b; });
      if (s_.Take("ge") || s_.Take("hs")) return make([](T a, T b) { return a >= b; });
      return nullptr;
    });
  }

  Statement& s_;
  Scope& scope_;
  Instruction& i_;
  size_t operand_index_ = 0;  // of the next operand
};

}  // namespace

void Decode(Statement* statement, Scope* scope, Instruction* instruction) {
  Decoder(statement, scope, instruction).Run();
}

}  // namespace jaxdali::ptx
