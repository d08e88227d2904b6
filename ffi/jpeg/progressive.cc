// The tables of progressive scans: codes of at most 10 bits by one look-up, longer ones by CanonicalCodes. The scans
// themselves are decoded in progressive.h.
#include "ffi/jpeg/progressive.h"

#include <algorithm>

namespace jaxdali::jpeg {

// The entry of a code of `bits` bits, without the magnitude after it. `symbol`: the code's value in the Huffman table.
// For AC, its upper half is a run, its lower half a size; size 0 stands for ZRL (run 15) or EOBn (G.1.2.2).
CodeTable::Entry CodeTable::MakeEntry(int symbol, int bits) const {
  Entry e{};
  e.bits = static_cast<uint8_t>(bits);
  e.run = use_ == kDc ? 0 : symbol >> 4 & 15;
  e.value = static_cast<int16_t>(symbol & 15);
  e.kind = use_ == kDc || e.value != 0 ? kMagnitude : e.run == 15 ? kZeros : kRun;
  return e;
}

CodeTable::Entry CodeTable::Find(uint64_t window) const {
  const CanonicalCodes::Code code = codes_.Find(static_cast<uint32_t>(window >> 48));
  return MakeEntry(code.value, code.bits);
}

// Fills the entries of all windows of kWindow bits, code by code (see CodeTable in progressive.h).
void CodeTable::Make(const HuffmanTable& table, Use use) {
  codes_.Make(table);
  use_ = use;
  Entry no_code{};
  no_code.kind = kOther;
  int window = 0, index = 0;
  for (int bits = 1; bits <= kWindow; bits++) {
    for (int n = 0; n < table.count[bits - 1]; n++) {
      // All windows that begin with this code: they are consecutive.
      const Entry code = MakeEntry(table.value[index++], bits);
      const int bits_left = kWindow - bits, size = code.value;
      // A refinement's coefficient has one bit, its sign: other sizes are errors that DecodeAcRefine finds.
      const bool is_complete =
          use != kDc && code.kind == kMagnitude && size <= bits_left && (use == kFirst || size == 1);
      for (int following = 0; following < 1 << bits_left; following++) {
        Entry e = code;
        if (is_complete) {
          e.kind = kValue;
          e.value = static_cast<int16_t>(Extend(static_cast<uint32_t>(following >> (bits_left - size)), size));
          e.bits = static_cast<uint8_t>(bits + size);
        } else if (use == kRefine && code.kind == kZeros) {
          // In a refinement, ZRL is an entry like the others: 15 zeros, then one more that stays zero.
          e.kind = kValue;
        }
        entry_[window++] = e;
      }
    }
  }
  std::fill(entry_ + window, entry_ + (1 << kWindow), no_code);
}

}  // namespace jaxdali::jpeg
