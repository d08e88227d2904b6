// Reads PTX (NVIDIA's "Parallel Thread Execution ISA") as nvcc writes it. Module finds the functions of a file and its
// global variables; Reader reads one function, statement by statement, when it is first needed.
#include "ffi/fuzz/ptx/module.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace jaxdali::ptx {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Whether the text begins with this whole word.
bool StartsWord(std::string_view text, std::string_view word) {
  return text.substr(0, word.size()) == word &&
         (text.size() == word.size() || std::string_view(" \t\n(").find(text[word.size()]) != text.npos);
}

// All decoded functions, by the number of their first instruction.
struct NumberedFunction {
  uint32_t first;
  const Function* function;
};
std::vector<NumberedFunction>& AllFunctions() {
  static std::vector<NumberedFunction> functions;
  return functions;
}

// "name[12]" or "name": the name and the number of elements.
std::pair<std::string_view, uint32_t> NameAndCount(std::string_view text) {
  const size_t bracket = text.find('[');
  if (bracket == text.npos) return {text, 1};
  return {Trim(text.substr(0, bracket)), static_cast<uint32_t>(std::strtoul(text.data() + bracket + 1, nullptr, 10))};
}

struct Variable {
  std::string_view name;
  uint32_t bytes, align;
  Type type;
};

// Reads a declaration: ".align 8 .b8 name[16]", ".b64 name". Other words that begin with a dot are skipped.
Variable ParseVariable(std::string_view text) {
  Variable v{/*name=*/{}, /*bytes=*/0, /*align=*/1, /*type=*/{}};
  while (true) {
    text = Trim(text);
    const size_t end = std::min(text.find_first_of(kSpace), text.size());
    const std::string_view word = text.substr(0, end);
    if (word.empty() || word[0] != '.') break;
    text = Trim(text.substr(end));
    if (word == ".align") {
      v.align = static_cast<uint32_t>(std::strtoul(text.data(), nullptr, 10));
      text = text.substr(std::min(text.find_first_of(kSpace), text.size()));
    } else if (const Type type = TypeOf(word.substr(1)); type.kind != Type::kNone) {
      v.type = type;
    }
  }
  const auto [name, count] = NameAndCount(text);
  v.name = name;
  v.bytes = count * v.type.bytes;
  v.align = std::max<uint32_t>(v.align, v.type.bytes);
  return v;
}

// Gives a variable the next aligned place of a memory that ends at `end`. Returns its offset.
uint32_t Allocate(uint32_t* end, const Variable& v) {
  const uint32_t offset = (*end + v.align - 1) / v.align * v.align;
  *end = offset + v.bytes;
  return offset;
}

Range PlaceInFrame(Function* f, const Variable& v) {
  const uint32_t offset = Allocate(&f->frame_bytes, v);
  return {offset, v.bytes};
}

// Enters a variable in shared memory that the function uses, once.
void AddShared(Function* f, Range range) {
  for (const Range& other : f->shared)
    if (other.begin == range.begin) return;
  f->shared.push_back(range);
}

// Reads the text of a function from its first word to its last brace.
class Reader {
 public:
  Reader(Module* module, Module::Entry* entry)
      : module_(module),
        is_kernel_(entry->is_kernel),
        function_(&entry->function),
        scope_(function_),
        text_(std::string_view(module->text).substr(entry->begin)),
        line_(entry->line) {}

  // Reads the head, then the statements up to the brace that closes the function.
  void Run() {
    const size_t brace = text_.find("\n{");
    ReadHead(text_.substr(0, brace));
    line_ += static_cast<uint32_t>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(brace), '\n')) + 1;
    text_ = text_.substr(brace + 2);
    shared_end_ = module_->shared_bytes;
    int depth = 1;
    while (depth > 0) {
      SkipSpace();
      if (text_[0] == '{') {
        depth++;
        text_ = text_.substr(1);
      } else if (text_[0] == '}') {
        depth--;
        text_ = text_.substr(1);
      } else if (StartsWord(text_, ".loc")) {
        ReadLocation(TakeLine());
      } else {
        ReadStatement();
      }
    }
    ResolveLabels();
  }

 private:
  // Skips space and comments.
  void SkipSpace() {
    while (true) {
      const size_t n = std::min(text_.find_first_not_of(kSpace), text_.size());
      Take(n);
      if (text_.substr(0, 2) != "//") return;
      TakeLine();
    }
  }
  // The next n characters of the text, or its next line; counts lines.
  std::string_view Take(size_t n) {
    const std::string_view taken = text_.substr(0, n);
    line_ += static_cast<uint32_t>(std::count(taken.begin(), taken.end(), '\n'));
    text_ = text_.substr(n);
    return taken;
  }
  std::string_view TakeLine() { return Take(text_.find('\n')); }

  // Reads ".entry name(.param .u64 a, ...)" or ".func (.param .b32 result) name(...)". The parameters of a kernel are
  // in memory of their own, those of a function in its frame.
  void ReadHead(std::string_view head) {
    // 6 and 5 are the lengths of the words.
    head = head.substr(head.find(is_kernel_ ? ".entry" : ".func") + (is_kernel_ ? 6 : 5));
    head = Trim(head);
    if (head[0] == '(') {  // the result
      const size_t end = head.find(')');
      function_->result = {Parameter(head.substr(1, end - 1))};
      head = Trim(head.substr(end + 1));
    }
    const size_t open = head.find('(');
    if (open == head.npos) return;
    const std::string_view list = Trim(head.substr(open + 1, head.find(')', open) - open - 1));
    if (list.empty()) return;
    for (std::string_view parameter : Split(list, ',')) {
      if (!is_kernel_) {
        function_->parameters.push_back(Parameter(parameter));
        continue;
      }
      const Variable v = ParseVariable(parameter.substr(std::strlen(".param")));
      uint32_t end =
          function_->parameters.empty() ? 0 : function_->parameters.back().begin + function_->parameters.back().size;
      const uint32_t offset = Allocate(&end, v);
      function_->parameters.push_back({offset, v.bytes});
      scope_.Declare(v.name, kParameterWindow + offset);
    }
  }
  // Gives a function's parameter or result a place in the frame.
  Range Parameter(std::string_view text) {
    const Variable v = ParseVariable(Trim(text).substr(std::strlen(".param")));
    const Range place = PlaceInFrame(function_, v);
    scope_.DeclareInFrame(v.name, place);
    return place;
  }

  // ".loc FILE LINE COLUMN[, function_name ..., inlined_at ...]"
  void ReadLocation(std::string_view text) {
    char* end;
    const auto file = static_cast<uint32_t>(std::strtoul(text.data() + 4, &end, 10));
    const auto line = static_cast<uint32_t>(std::strtoul(end, nullptr, 10));
    // ReadStatement sets the line in the PTX. Source line 0: code without a line of its own.
    if (line > 0) place_ = {/*line=*/0, file, /*source_line=*/line};
  }

  // A label, a declaration or an instruction.
  void ReadStatement() {
    const uint32_t line = line_;
    const size_t end = text_.find_first_of(";:");
    const std::string_view text = Trim(Take(end));
    const bool is_label = text_[0] == ':';
    Take(1);  // the colon or semicolon
    if (is_label) {
      labels_[std::string(text)] = static_cast<uint32_t>(function_->code.size());
    } else if (text[0] == '.') {
      ReadDeclaration(text);
    } else {
      place_.line = line;
      ReadInstruction(text);
    }
  }

  // Registers, variables, and the pragma that says which bytes of the next vector are used. Throws a Fault for others.
  void ReadDeclaration(std::string_view text) {
    const auto after_word = [&](std::string_view word) { return text.substr(word.size()); };
    if (StartsWord(text, ".reg")) {  // ".reg .b32 %r<12>": the registers %r0 to %r11
      const auto [name, count] = NameAndCount(Trim(after_word(".reg")));
      const Type type = TypeOf(name.substr(1, name.find_first_of(kSpace) - 1));
      std::string_view prefix = Trim(name.substr(name.find_first_of(kSpace)));
      scope_.DeclareRegisters(prefix.substr(0, prefix.find('<')), type);
    } else if (StartsWord(text, ".shared")) {
      const Variable v = ParseVariable(after_word(".shared"));
      const uint32_t offset = Allocate(&shared_end_, v);
      scope_.Declare(v.name, kSharedWindow + offset);
      AddShared(function_, {offset, v.bytes});
    } else if (StartsWord(text, ".local") || StartsWord(text, ".param")) {
      const Variable v = ParseVariable(after_word(".local"));  // the words are equally long
      scope_.DeclareInFrame(v.name, PlaceInFrame(function_, v));
    } else if (StartsWord(text, ".pragma")) {
      const size_t mask = text.find("used_bytes_mask ");
      // 16: the length of the word. The mask has a bit for each byte.
      if (mask != text.npos) used_bytes_ = static_cast<uint16_t>(std::strtoul(text.data() + mask + 16, nullptr, 0));
    } else {
      throw Fault(std::string(text) + ": unknown");
    }
  }

  // Reads "@%p name.modifier operand, ...", where the guard "@%p" or "@!%p" may be missing, and appends the
  // instruction.
  void ReadInstruction(std::string_view text) {
    Statement s;
    s.text = text;
    Instruction i;
    if (text[0] == '@') {
      const size_t end = text.find_first_of(kSpace);
      i.guard_value = text[1] != '!';
      i.guard = scope_.Register(text.substr(i.guard_value ? 1 : 2, end - (i.guard_value ? 1 : 2)));
      text = Trim(text.substr(end));
    }
    const size_t end = std::min(text.find_first_of(kSpace), text.size());
    s.modifiers = Split(text.substr(0, end), '.');
    s.name = s.modifiers[0];
    s.modifiers.erase(s.modifiers.begin());
    text = Trim(text.substr(end));
    if (!text.empty()) s.operands = Split(text, ',');
    i.used = std::exchange(used_bytes_, uint16_t{0xFFFF});
    if (s.name == "call") {
      MakeCall(s, &i);
    } else if (s.name == "bra") {
      jumps_.push_back({static_cast<uint32_t>(function_->code.size()), std::string(s.operands.at(0))});
      s.operands.clear();
    }
    Decode(&s, &scope_, &i);
    function_->code.push_back(i);
    function_->places.push_back(place_);
  }

  // Reads "call.uni (result), function, (argument, ...)", without or with a result and arguments, which are variables
  // in the frame.
  void MakeCall(Statement& s, Instruction* i) {
    // The places of variables in "(name, ...)".
    auto list = [&](std::string_view text) {
      std::vector<Range> places;
      text = Trim(text.substr(1, text.size() - 2));
      if (!text.empty())
        for (std::string_view name : Split(text, ',')) places.push_back(*scope_.InFrame(name));
      return places;
    };
    // The operands are the list of results, if there is one, the function, and the list of arguments, if there is one.
    size_t operand_index = 0;
    std::vector<Range> results, arguments;
    if (s.operands.at(0)[0] == '(') results = list(s.operands[operand_index++]);
    const std::string_view name = s.operands.at(operand_index++);
    if (operand_index < s.operands.size()) arguments = list(s.operands[operand_index]);
    Call call{module_->Get(name), /*arguments=*/{}, /*results=*/{}};
    const Function& callee = *call.callee;
    if (arguments.size() != callee.parameters.size() || results.size() != callee.result.size())
      throw Fault(std::string(s.text) + ": the function has another number of parameters");
    for (size_t k = 0; k < arguments.size(); k++)
      call.arguments.push_back({arguments[k].begin, callee.parameters[k].begin, callee.parameters[k].size});
    for (size_t k = 0; k < results.size(); k++)
      call.results.push_back({callee.result[k].begin, results[k].begin, results[k].size});
    i->call = &function_->calls.emplace_back(std::move(call));
    s.operands.clear();
  }

  // Ends the function: sets the targets of jumps, adds the registers and memory of the functions that it calls, and
  // numbers the instructions.
  void ResolveLabels() {
    Function& f = *function_;
    for (const auto& [jump_index, label] : jumps_) {
      const auto label_entry = labels_.find(label);
      if (label_entry == labels_.end()) throw Fault(label + ": no such label");
      f.code[jump_index].target = f.code.data() + label_entry->second;
    }
    f.frame_bytes = (f.frame_bytes + 15) / 16 * 16;
    for (const Call& call : f.calls) {
      for (const Range& range : call.callee->shared) AddShared(&f, range);
      f.all_registers = std::max(f.all_registers, call.callee->all_registers);
      f.all_frame_bytes = std::max(f.all_frame_bytes, call.callee->all_frame_bytes);
    }
    f.all_registers += f.registers;
    f.all_frame_bytes += f.frame_bytes;
    static uint32_t numbers = 0;
    AllFunctions().push_back({numbers, &f});
    for (Instruction& i : f.code) i.number = numbers++;
    if (numbers >> kInstructionBits) throw Fault("too many instructions");
  }

  Module* module_;
  bool is_kernel_;
  Function* function_;
  Scope scope_;
  std::string_view text_;
  uint32_t line_;
  Function::Place place_{};                              // of the current instruction
  uint16_t used_bytes_ = 0xFFFF;                         // of the next instruction's vector, a bit for each byte
  uint32_t shared_end_ = 0;                              // end of the variables in shared memory so far
  std::map<std::string, uint32_t> labels_;               // and the instructions that they stand before
  std::vector<std::pair<uint32_t, std::string>> jumps_;  // numbers of instructions, and the labels that they jump to
};

}  // namespace

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The parts between separators that are not within brackets, trimmed.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t k = 0; k <= text.size(); k++) {
    if (k < text.size()) {
      const char c = text[k];
      if (c == '(' || c == '[' || c == '{') depth++;
      if (c == ')' || c == ']' || c == '}') depth--;
      if (c != separator || depth > 0) continue;
    }
    parts.push_back(Trim(text.substr(begin, k - begin)));
    begin = k + 1;
  }
  return parts;
}

// The type that a modifier names: "pred", or a letter and the number of bits, such as "u32". Types "b" without a sign
// count as unsigned. kNone: the modifier names no type.
Type TypeOf(std::string_view name) {
  if (name == "pred") return {Type::kPredicate, /*bytes=*/1};
  if (name.size() < 2) return {};
  int bits = 0;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), bits);
  if (error != std::errc() || end != name.data() + name.size()) return {};
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return {};
  const auto bytes = static_cast<uint8_t>(bits / 8);
  switch (name[0]) {
    case 'b':
    case 'u':
      return {Type::kUnsigned, bytes};
    case 's':
      return {Type::kSigned, bytes};
    case 'f':
      return {Type::kFloat, bytes};
    default:
      return {};
  }
}

// Removes a modifier. False: there is none.
bool Statement::Take(std::string_view modifier) {
  const auto entry = std::find(modifiers.begin(), modifiers.end(), modifier);
  if (entry == modifiers.end()) return false;
  modifiers.erase(entry);
  return true;
}

uint32_t Scope::Register(std::string_view name) {
  const auto entry = registers_.find(name);
  if (entry != registers_.end()) return entry->second;
  return registers_[std::string(name)] = function_->registers++;
}

Source Scope::Constant(uint64_t value) {
  const auto [entry, is_new] = constants_.emplace(value, static_cast<uint32_t>(function_->constants.size()));
  if (is_new) function_->constants.push_back(value);
  return {Source::kConstant, entry->second};
}

// The source for an operand: a register, or a number, a float's bits or a variable's address as a constant. Notes that
// the function uses the variable, if it is in shared memory.
Source Scope::Value(std::string_view text, Type type) {
  // "_" is a register that nobody reads.
  if (text[0] == '%' || text == "_") return {Source::kRegister, Register(text)};
  // The number behind the first `skip` characters. Base 0: hexadecimal after 0x, octal after 0, otherwise decimal.
  const auto number = [&](int base, size_t skip) {
    return std::strtoull(std::string(text.substr(skip)).c_str(), nullptr, base);
  };
  // The bits of a float or double, as 0f3F800000 or 0d3FF0000000000000.
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D')) {
    const bool is_double = text[1] == 'd' || text[1] == 'D';
    if (type.kind == Type::kFloat && type.bytes != (is_double ? 8 : 4))
      throw Fault(std::string(text) + ": another type");
    return Constant(number(/*base=*/16, /*skip=*/2));
  }
  if (text[0] == '-') return Constant(~number(/*base=*/0, /*skip=*/1) + 1);  // two's complement
  if (text[0] >= '0' && text[0] <= '9') return Constant(number(/*base=*/0, /*skip=*/0));
  if (const auto entry = addresses_.find(text); entry != addresses_.end()) return Constant(entry->second);
  const auto& globals = function_->module->globals;
  if (const auto entry = globals.find(text); entry != globals.end()) {
    const Module::Global& global = entry->second;
    if (global.is_shared) AddShared(function_, {static_cast<uint32_t>(global.address - kSharedWindow), global.size});
    return Constant(global.address);
  }
  throw Fault(std::string(text) + ": unknown operand");
}

const Range* Scope::InFrame(std::string_view name) const {
  const auto entry = frame_.find(name);
  return entry == frame_.end() ? nullptr : &entry->second;
}

bool Scope::Is32Bits(std::string_view name) const {
  const auto type = types_.find(name.substr(0, name.find_first_of("0123456789")));
  return type != types_.end() && type->second.bytes == 4;
}

// Reads "[base+offset]". True: the base is a variable in the frame.
bool Scope::Address(std::string_view text, Instruction* i) {
  if (text.size() < 3 || text[0] != '[') throw Fault(std::string(text) + ": not an address");
  text = Trim(text.substr(1, text.size() - 2));
  const size_t plus = text.find('+');
  const std::string_view base = Trim(text.substr(0, plus));
  i->offset = plus == text.npos ? 0 : std::strtoll(std::string(text.substr(plus + 1)).c_str(), nullptr, 0);
  if (const Range* place = InFrame(base)) {
    i->offset += place->begin;
    return true;
  }
  i->sources[0] = Value(base, {Type::kUnsigned, /*bytes=*/8});
  if (base[0] == '%' && Is32Bits(base)) i->address_mask = 0xFFFFFFFF;
  return false;
}

// Goes through the lines: notes where functions begin, which are decoded later, and reads variables and names of
// sources.
Module::Module(const std::string& path) : name(path.substr(path.rfind('/') + 1)) {
  std::ifstream file(path);
  if (!file) throw Fault(path + ": cannot be read");
  text.assign(std::istreambuf_iterator<char>(file), {});
  uint32_t line = 0;
  bool in_function = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t end = std::min(text.find('\n', offset), text.size());
    const std::string_view line_text(text.data() + offset, end - offset);
    line++;
    if (in_function) {
      in_function = line_text != "}";
    } else if (line_text == "{") {
      in_function = true;
    } else if (line_text.find(".entry ") != line_text.npos || line_text.find(".func ") != line_text.npos) {
      const bool is_kernel = line_text.find(".entry ") != line_text.npos;
      const std::string_view remaining_text(text.data() + offset, text.size() - offset);
      // A declaration has a semicolon before the next body.
      const bool is_declaration = remaining_text.find(';') < remaining_text.find("\n{");
      // 6 and 5 are the lengths of the words. The result and the name are within the next 2000 characters.
      std::string_view signature =
          Trim(remaining_text.substr(remaining_text.find(is_kernel ? ".entry" : ".func") + (is_kernel ? 6 : 5), 2000));
      if (signature[0] == '(') signature = Trim(signature.substr(signature.find(')') + 1));
      const std::string function(signature.substr(0, signature.find_first_of(" \t\n(")));
      if (!is_declaration) {
        auto& entry = entries[function] = std::make_unique<Entry>();
        entry->begin = offset;
        entry->line = line;
        entry->is_kernel = is_kernel;
      }
    } else if (const std::string_view words = Trim(line_text); StartsWord(words, ".file")) {
      const size_t quote = words.find('"');
      sources[static_cast<uint32_t>(std::strtoul(words.data() + 5, nullptr, 10))] =
          words.substr(quote + 1, words.rfind('"') - quote - 1);
    } else {
      std::string_view declaration = words;  // of a variable, or a line without meaning here
      for (std::string_view linkage : {".visible", ".weak", ".extern"})
        if (StartsWord(declaration, linkage)) declaration = Trim(declaration.substr(linkage.size()));
      if (StartsWord(declaration, ".shared")) {
        // 7 is the length of the word.
        const Variable v = ParseVariable(declaration.substr(7, declaration.find(';') - 7));
        globals[std::string(v.name)] = {kSharedWindow + Allocate(&shared_bytes, v), v.bytes, /*is_shared=*/true};
      } else if (StartsWord(declaration, ".global") || StartsWord(declaration, ".const")) {
        declaration = declaration.substr(declaration.find_first_of(kSpace),
                                         declaration.find(';') - declaration.find_first_of(kSpace));
        const size_t equals = declaration.find('=');
        const Variable v = ParseVariable(Trim(declaration.substr(0, equals)));
        auto& bytes = data.emplace_back(new uint8_t[v.bytes]());
        globals[std::string(v.name)] = {reinterpret_cast<uint64_t>(bytes.get()), v.bytes, /*is_shared=*/false};
        // The values of an array are in braces.
        if (equals != declaration.npos) {
          std::string_view values = Trim(declaration.substr(equals + 1));
          if (values[0] == '{') values = values.substr(1, values.size() - 2);
          uint8_t* to = bytes.get();
          for (std::string_view value : Split(values, ',')) {
            const auto bits = std::strtoull(std::string(value).c_str(), nullptr, 0);
            std::memcpy(to, &bits, v.type.bytes);
            to += v.type.bytes;
          }
        }
      }
    }
    offset = end + 1;
  }
}

// The function of this name, which is decoded at the first call. Throws a Fault if that is impossible.
const Function* Module::Get(std::string_view function) {
  const auto iterator = entries.find(function);
  if (iterator == entries.end()) throw Fault(std::string(function) + ": not in " + name);
  Entry& entry = *iterator->second;
  if (!entry.is_decoded) {
    // It is set before decoding, so a function that calls itself is found here.
    if (entry.function.module) throw Fault(std::string(function) + ": calls itself, or could not be decoded before");
    entry.function.module = this;
    entry.function.name = function;
    Reader(this, &entry).Run();
    entry.is_decoded = true;
  }
  return &entry.function;
}

std::string_view Module::LineAt(uint32_t line) const {
  size_t offset = 0;
  for (uint32_t k = 1; k < line; k++) offset = text.find('\n', offset) + 1;
  return Trim(std::string_view(text).substr(offset, text.find('\n', offset) - offset));
}

// The instruction of this number: its line in the PTX, and where it is in the source (if known) and in the PTX.
std::string Describe(uint32_t number) {
  for (const NumberedFunction& f : AllFunctions()) {
    if (number < f.first || number - f.first >= f.function->code.size()) continue;
    const Function::Place place = f.function->places[number - f.first];
    const Module& module = *f.function->module;
    const auto source = module.sources.find(place.file);
    return "  " + std::string(module.LineAt(place.line)) + "\n    at " +
           (source == module.sources.end() ? std::string()
                                           : source->second + ":" + std::to_string(place.source_line) + ", ") +
           module.name + ":" + std::to_string(place.line);
  }
  return "  an unknown instruction";
}

}  // namespace jaxdali::ptx
