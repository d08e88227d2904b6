#include "ffi/jpeg/pair_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "ffi/jpeg/coefficients.h"

namespace jaxdali::jpeg {
namespace {

PairEntry MakeEntry(int bits, int advance, int run, int tail, int first, int second) {
  const int begin = bits ? 64 - bits : 0;
  return {static_cast<uint8_t>(bits),  static_cast<uint8_t>(advance), static_cast<uint16_t>(begin | tail << 8),
          static_cast<int16_t>(first), static_cast<uint8_t>(run),     static_cast<int8_t>(second)};
}

uint64_t AsWord(const PairEntry& entry) { return std::bit_cast<uint64_t>(entry); }

// The meaning of a code.
struct Meaning {
  int run, size, advance;

  Meaning(bool is_ac, int value) : run(is_ac ? value >> 4 : 0), size(value & 15), advance(run + 1) {
    if (is_ac && size == 0 && run != 15) run = 0, advance = kAdvanceToEnd;
  }
};

// Calls each(first window, number of windows, code's bits, value) for the windows of `bits` bits that begin with a
// code, code by code. Returns the number of windows that do.
template <class Each>
int ForEachCode(const HuffmanTable& table, int bits, Each each) {
  int window = 0, number = 0;
  for (int l = 1; l <= bits; l++)
    for (int n = 0; n < table.count[l - 1]; n++, window += 1 << (bits - l))
      each(window, 1 << (bits - l), l, table.value[number++]);
  return window;
}

}  // namespace

bool IsBaseline(const HuffmanTable& table) {
  const int n = std::accumulate(table.count, table.count + 16, 0), most = table.is_ac ? kMaxAcSize : kMaxDcSize;
  return std::all_of(table.value, table.value + n, [&](int v) { return (table.is_ac ? v & 15 : v) <= most; });
}

void Codes::Make(const HuffmanTable& table) {
  uint32_t code = 0;
  int sum = 0;
  std::memcpy(value_, table.value, sizeof value_);
  for (int l = 1; l <= 16; l++, code <<= 1) {
    offset_[l] = sum - static_cast<int>(code);
    code += table.count[l - 1];
    sum += table.count[l - 1];
    limit_[l] = code << (16 - l);
  }
}

Codes::Code Codes::Find(uint32_t window16) const {
  for (int l = 1; l <= 16; l++)
    if (window16 < limit_[l]) return {l, value_[(static_cast<int>(window16 >> (16 - l)) + offset_[l]) & 255]};
  return {0, 0};
}

template <int kBits>
void PairTable<kBits>::Make(const HuffmanTable& table, const HuffmanTable& next) {
  is_ac_ = table.is_ac;
  codes_.Make(table);

  // What a second symbol adds to an entry. Windows of n bits are at 1 << n. 0: there is no complete second symbol, or
  // its value exceeds a byte.
  uint64_t second[1 << kBits];
  for (int bits = 0; bits < kBits; bits++) {
    uint64_t* const entries = second + (1 << bits);
    const int n = ForEachCode(next, bits, [&](int window, int windows, int code_bits, int value) {
      const Meaning m(true, value);
      const int left = bits - code_bits - m.size;
      uint64_t* to = entries + window;
      if (left < 0 || m.size > 7) {
        std::fill_n(to, windows, 0);
        return;
      }
      for (int k = 0; k < 1 << m.size; k++, to += 1 << left)
        std::fill_n(to, 1 << left,
                    AsWord({static_cast<uint8_t>(code_bits + m.size), static_cast<uint8_t>(m.advance), 0, 0, 0,
                            static_cast<int8_t>(Extend(k, m.size))}));
    });
    std::fill(entries + n, entries + (1 << bits), 0);
  }

  const PairEntry slow = MakeEntry(0, kAdvanceToSlow, 0, 0, 0, 0);
  const int n = ForEachCode(table, kBits, [&](int window, int windows, int code_bits, int value) {
    const Meaning m(is_ac_, value);
    const int rest = kBits - code_bits, bits = code_bits + m.size;
    PairEntry* to = entry_ + window;
    if (m.advance == kAdvanceToEnd) {
      std::fill_n(to, windows, MakeEntry(bits, m.advance, 0, 0, 0, 0));
    } else if (m.size <= rest) {
      const int each = 1 << (rest - m.size);
      for (int k = 0; k < 1 << m.size; k++, to += each) {
        const uint64_t first = AsWord(MakeEntry(bits, m.advance, m.run, 0, Extend(k, m.size), 0));
        for (int j = 0; j < each; j++) to[j] = std::bit_cast<PairEntry>(first + second[each + j]);
      }
    } else if (rest > 0) {  // the highest bit of the magnitude is in the window and gives the sign
      const int tail = m.size - rest;
      for (int k = 0; k < windows; k++) {
        const int high = k << tail;
        const bool positive = k >> (rest - 1);
        to[k] = MakeEntry(bits, m.advance, m.run, tail, positive ? high : high - (1 << m.size) + 1, 0);
      }
    } else {
      *to = slow;
    }
  });
  std::fill(entry_ + n, entry_ + (1 << kBits), slow);
  std::transform(entry_, entry_ + (1 << kBits), bits_, [](const PairEntry& e) { return e.bits; });
}

template <int kBits>
PairEntry PairTable<kBits>::One(uint64_t window) const {
  const Codes::Code code = codes_.Find(static_cast<uint32_t>(window >> 48));
  if (code.bits == 0) return MakeEntry(0, kAdvanceToSlow, 0, 0, 0, 0);
  const Meaning m(is_ac_, code.value);
  const uint64_t magnitude = m.size ? window << code.bits >> (64 - m.size) : 0;
  return MakeEntry(code.bits + m.size, m.advance, m.run, 0, Extend(static_cast<uint32_t>(magnitude), m.size), 0);
}

void SkipTable::Make(const HuffmanTable& ac) {
  // After a symbol, the rest of a window is a shorter window, whose entry is added to the symbol's: the advance in the
  // upper byte, the number of bits in the lower one. Windows of n bits are at 1 << n. 0: there is no code.
  uint16_t made[2 << kSkipBits];
  // Symbols that advance by 64 or more before the end-of-block code do not fit into a block. Then the entry contains
  // only the first symbol, and IsOdd finds everything else that does not lead to a regular end.
  constexpr uint16_t kFar = 64 << 8;
  for (int bits = 0; bits <= kSkipBits; bits++) {
    uint16_t* const entries = made + (1 << bits);
    const int n = ForEachCode(ac, bits, [&](int window, int windows, int code_bits, int value) {
      const Meaning m(true, value);
      const auto symbol = static_cast<uint16_t>(m.advance << 8 | (code_bits + m.size));
      const int left = bits - code_bits - m.size;
      uint16_t *to = entries + window, *const end = to + windows;
      if (left <= 0 || m.advance == kAdvanceToEnd) {
        std::fill(to, end, symbol);
        return;
      }
      for (const uint16_t* rest = made + (1 << left); to < end; to += 1 << left) {
        for (int k = 0; k < 1 << left; k++) {
          const auto all = static_cast<uint16_t>(symbol + rest[k]);
          to[k] = all & kFar ? symbol : all;
        }
      }
    });
    std::fill(entries + n, entries + (1 << bits), 0);
  }
  for (int window = 0; window < 1 << kSkipBits; window++) {
    const uint16_t entry = made[window | 1 << kSkipBits];
    bits_[window] = static_cast<uint8_t>(entry);
    advance_[window] = entry ? entry >> 8 : kAdvanceToSlow;
  }
  made_ = true;
}

template class PairTable<kDcBits>;
template class PairTable<kAcBits>;

}  // namespace jaxdali::jpeg
