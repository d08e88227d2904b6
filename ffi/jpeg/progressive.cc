#include "ffi/jpeg/progressive.h"

#include <algorithm>

namespace jaxdali::jpeg {

CodeTable::Entry CodeTable::Of(int symbol, int bits) const {
  Entry e{};
  e.bits = static_cast<uint8_t>(bits);
  e.run = use_ == kDc ? 0 : symbol >> 4 & 15;
  e.value = static_cast<int16_t>(symbol & 15);
  e.kind = use_ == kDc || e.value != 0 ? kMagnitude : e.run == 15 ? kZeros : kRun;
  return e;
}

CodeTable::Entry CodeTable::Find(uint64_t window) const {
  const Codes::Code code = codes_.Find(static_cast<uint32_t>(window >> 48));
  return Of(code.value, code.bits);
}

void CodeTable::Make(const HuffmanTable& table, Use use) {
  codes_.Make(table);
  use_ = use;
  Entry other{};
  other.kind = kOther;
  int window = 0, number = 0;
  for (int bits = 1; bits <= kWindow; bits++) {
    for (int n = 0; n < table.count[bits - 1]; n++) {
      const Entry code = Of(table.value[number++], bits);
      const int left = kWindow - bits, size = code.value;
      const bool whole = use != kDc && code.kind == kMagnitude && size <= left && (use == kFirst || size == 1);
      for (int rest = 0; rest < 1 << left; rest++) {
        Entry e = code;
        if (whole) {
          e.kind = kValue;
          e.value = static_cast<int16_t>(Extend(static_cast<uint32_t>(rest >> (left - size)), size));
          e.bits = static_cast<uint8_t>(bits + size);
        } else if (use == kRefine && code.kind == kZeros) {
          e.kind = kValue;
        }
        entry_[window++] = e;
      }
    }
  }
  std::fill(entry_ + window, entry_ + (1 << kWindow), other);
}

}  // namespace jaxdali::jpeg
