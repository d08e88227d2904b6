// Files of PTX as text, and the functions in them.
#ifndef JAXDALI_FFI_FUZZ_PTX_MODULE_H_
#define JAXDALI_FFI_FUZZ_PTX_MODULE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ffi/fuzz/ptx/machine.h"

namespace jaxdali::ptx {

struct Type {
  enum Kind : uint8_t { kNone, kPredicate, kUnsigned, kSigned, kFloat } kind = kNone;
  uint8_t bytes = 0;
};
Type TypeOf(std::string_view name);  // "u32"

// An instruction in words: "ld.global.v2.u32" is `name` and `modifiers`.
struct Statement {
  std::string_view text, name;
  std::vector<std::string_view> modifiers, operands;
  Type type, second_type;  // the last and the one before it

  // Removes a modifier. False: there is none. A modifier that remains after decoding is unknown (Decode).
  bool Take(std::string_view modifier);
};

// The variables that a statement can name, and the registers and constants that it uses.
class Scope {
 public:
  explicit Scope(Function* function) : function_(function) {}

  void DeclareRegisters(std::string_view prefix, Type type) { types_[std::string(prefix)] = type; }
  void Declare(std::string_view name, uint64_t address) { addresses_[std::string(name)] = address; }
  void DeclareInFrame(std::string_view name, Range place) { frame_[std::string(name)] = place; }

  uint32_t Register(std::string_view name);        // its number; a new one at the first use
  Source Value(std::string_view text, Type type);  // of an operand: a register, a number or the address of a variable
  Source Constant(uint64_t value);

  // The place of a variable in the frame, or null.
  const Range* InFrame(std::string_view name) const;
  // Reads "[base+offset]". If the base is a variable in the frame, sets `offset` to its place there, and returns true.
  // Otherwise sets sources[0] to the base, `offset` and `address_mask`, and returns false.
  bool Address(std::string_view text, Instruction* i);

 private:
  bool Is32Bits(std::string_view name) const;

  Function* function_;
  std::map<std::string, uint64_t, std::less<>> addresses_;  // of variables outside of the frame, by name
  std::map<std::string, Range, std::less<>> frame_;         // places of variables in the frame, by name
  std::map<std::string, Type, std::less<>> types_;          // of registers, by the letters before their number
  std::map<std::string, uint32_t, std::less<>> registers_;  // numbers of the registers that are used, by name
  std::map<uint64_t, uint32_t> constants_;                  // indices in Function::constants, by value
};

// Sets all of an instruction but its target. Throws a Fault if it is unknown.
void Decode(Statement* statement, Scope* scope, Instruction* instruction);

std::string_view Trim(std::string_view);
std::vector<std::string_view> Split(std::string_view, char separator);  // trimmed, not within brackets

// A file. Functions are decoded when they are first needed.
struct Module {
  explicit Module(const std::string& path);

  const Function* Get(std::string_view function);  // throws a Fault if there is none, or it can't be decoded
  std::string_view LineAt(uint32_t line) const;    // from 1 on

  struct Entry {
    size_t begin;   // in the text
    uint32_t line;  // there
    bool is_kernel;
    bool is_decoded = false;
    Function function;
  };
  std::string name, text;
  std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries;
  struct Global {
    uint64_t address;
    uint32_t size;
    bool is_shared;
  };
  std::map<std::string, Global, std::less<>> globals;
  std::map<uint32_t, std::string> sources;       // by their numbers
  std::vector<std::unique_ptr<uint8_t[]>> data;  // of globals
  uint32_t shared_bytes = 0;                     // of all variables in `globals`, of which each kernel uses a few
};

}  // namespace jaxdali::ptx

#endif  // JAXDALI_FFI_FUZZ_PTX_MODULE_H_
