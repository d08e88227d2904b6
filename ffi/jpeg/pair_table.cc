// Builds the tables. A window is an index: the next kBits bits of the data. Tables are filled code by code, since the
// windows that begin with one code are consecutive.
#include "ffi/jpeg/pair_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "ffi/jpeg/coefficients.h"

namespace jaxdali::jpeg {
namespace {

// `tail`: the number of the magnitude's bits beyond the table's window. The lowest one is bit 64 - bits of the 64 bits
// of data.
PairEntry MakeEntry(int bits, int advance, int run, int tail, int first, int second) {
  const int begin = bits ? 64 - bits : 0;
  return {static_cast<uint8_t>(bits),  static_cast<uint8_t>(advance), static_cast<uint16_t>(begin | tail << 8),
          static_cast<int16_t>(first), static_cast<uint8_t>(run),     static_cast<int8_t>(second)};
}

uint64_t AsWord(const PairEntry& entry) { return std::bit_cast<uint64_t>(entry); }

// A Huffman value: the number of zeros before a coefficient, and the bits of its magnitude (T.81, F.1.2). AC's value
// 0x00 ends the block (EOB); 0xF0 stands for 16 zeros (ZRL), a coefficient of size 0.
struct Symbol {
  int run, size, advance;

  Symbol(bool is_ac, int value) : run(is_ac ? value >> 4 : 0), size(value & 15), advance(run + 1) {
    if (is_ac && size == 0 && run != 15) run = 0, advance = kAdvanceToEnd;
  }
};

// Calls on_code(first window, number of windows, code's bits, value) for the windows of `bits` bits that begin with a
// code, code by code. Codes are canonical (Annex C): ascending within a length, then continued with one more bit.
// Returns the number of windows that begin with a code.
template <class Each>
int ForEachCode(const HuffmanTable& table, int bits, Each on_code) {
  int window = 0, index = 0;
  for (int l = 1; l <= bits; l++)
    for (int n = 0; n < table.count[l - 1]; n++, window += 1 << (bits - l))
      on_code(window, 1 << (bits - l), l, table.value[index++]);
  return window;
}

}  // namespace

// Whether no magnitude has more bits than in baseline data (T.81, tables F.1 and F.2).
bool IsBaseline(const HuffmanTable& table) {
  const int num_values = std::accumulate(table.count, table.count + 16, 0),
            max_size = table.is_ac ? kMaxAcSize : kMaxDcSize;
  return std::all_of(table.value, table.value + num_values,
                     [&](int v) { return (table.is_ac ? v & 15 : v) <= max_size; });
}

// Sets the ranges of the codes of each length.
void CanonicalCodes::Make(const HuffmanTable& table) {
  uint32_t code = 0;
  int sum = 0;
  std::memcpy(value_, table.value, sizeof value_);
  for (int length = 1; length <= 16; length++, code <<= 1) {
    // Codes of one length are consecutive numbers, so a code's value is at a constant distance from it.
    offset_[length] = sum - static_cast<int>(code);
    code += table.count[length - 1];
    sum += table.count[length - 1];
    limit_[length] = code << (16 - length);
  }
}

// The code at the start of a window of 16 bits; no bits if there is none.
CanonicalCodes::Code CanonicalCodes::Find(uint32_t window16) const {
  for (int length = 1; length <= 16; length++)
    if (window16 < limit_[length])
      return {length, value_[(static_cast<int>(window16 >> (16 - length)) + offset_[length]) & 255]};
  return {0, 0};
}

// Fills the entries of all windows of kBits bits: the first symbol of `table`, and the second one, of the AC table
// `next`, if the window has all of it.
template <int kBits>
void PairTable<kBits>::Make(const HuffmanTable& table, const HuffmanTable& next) {
  is_ac_ = table.is_ac;
  codes_.Make(table);

  // second[1 << n | window] is the word that a second symbol adds to an entry, if n bits are left for it: the
  // PairEntry with only bits, advance and `second`. 0: there is no complete second symbol, or its value exceeds a byte.
  uint64_t second[1 << kBits];
  for (int bits = 0; bits < kBits; bits++) {
    uint64_t* const entries = second + (1 << bits);
    const int n = ForEachCode(next, bits, [&](int window, int windows, int code_bits, int value) {
      const Symbol symbol(/*is_ac=*/true, value);
      const int bits_left = bits - code_bits - symbol.size;
      uint64_t* to = entries + window;
      if (bits_left < 0 || symbol.size > 7) {
        std::fill_n(to, windows, 0);
        return;
      }
      for (int k = 0; k < 1 << symbol.size; k++, to += 1 << bits_left)
        std::fill_n(to, 1 << bits_left,
                    AsWord({static_cast<uint8_t>(code_bits + symbol.size), static_cast<uint8_t>(symbol.advance), 0, 0,
                            0, static_cast<int8_t>(Extend(k, symbol.size))}));
    });
    std::fill(entries + n, entries + (1 << bits), 0);
  }

  // For windows that begin with no code of at most kBits bits, or whose code leaves no bit of the magnitude.
  const PairEntry slow = MakeEntry(/*bits=*/0, kAdvanceToSlow, /*run=*/0, /*tail=*/0, /*first=*/0, /*second=*/0);
  // Three kinds of codes: an end of block; one whose magnitude lies in the window, so that a second symbol may follow;
  // one whose magnitude extends beyond the window by `tail` bits.
  const int n = ForEachCode(table, kBits, [&](int window, int windows, int code_bits, int value) {
    const Symbol symbol(is_ac_, value);
    const int bits_left = kBits - code_bits, bits = code_bits + symbol.size;
    PairEntry* to = entry_ + window;
    if (symbol.advance == kAdvanceToEnd) {
      // End of block: there is no second symbol.
      std::fill_n(to, windows, MakeEntry(bits, symbol.advance, /*run=*/0, /*tail=*/0, /*first=*/0, /*second=*/0));
    } else if (symbol.size <= bits_left) {
      const int num_windows = 1 << (bits_left - symbol.size);
      for (int k = 0; k < 1 << symbol.size; k++, to += num_windows) {
        const uint64_t first =
            AsWord(MakeEntry(bits, symbol.advance, symbol.run, /*tail=*/0, Extend(k, symbol.size), /*second=*/0));
        // j: the window's bits after this symbol. The sum of the words adds up their bits and advances.
        for (int j = 0; j < num_windows; j++) to[j] = std::bit_cast<PairEntry>(first + second[num_windows + j]);
      }
    } else if (bits_left > 0) {  // the highest bit of the magnitude is in the window and gives the sign
      const int tail = symbol.size - bits_left;
      for (int k = 0; k < windows; k++) {
        const int high = k << tail;
        const bool positive = k >> (bits_left - 1);
        to[k] = MakeEntry(bits, symbol.advance, symbol.run, tail,
                          /*first=*/positive ? high : high - (1 << symbol.size) + 1, /*second=*/0);
      }
    } else {
      *to = slow;
    }
  });
  std::fill(entry_ + n, entry_ + (1 << kBits), slow);
  std::transform(entry_, entry_ + (1 << kBits), bits_, [](const PairEntry& e) { return e.bits; });
}

// The entry of one symbol of any length, without a second one. Advances by kAdvanceToSlow if there is no such code.
template <int kBits>
PairEntry PairTable<kBits>::DecodeOne(uint64_t window) const {
  const CanonicalCodes::Code code = codes_.Find(static_cast<uint32_t>(window >> 48));
  if (code.bits == 0) return MakeEntry(/*bits=*/0, kAdvanceToSlow, /*run=*/0, /*tail=*/0, /*first=*/0, /*second=*/0);
  const Symbol symbol(is_ac_, code.value);
  const uint64_t magnitude = symbol.size ? window << code.bits >> (64 - symbol.size) : 0;
  return MakeEntry(code.bits + symbol.size, symbol.advance, symbol.run, /*tail=*/0,
                   Extend(static_cast<uint32_t>(magnitude), symbol.size), /*second=*/0);
}

// Fills the entries of all windows of kSkipBits bits. Shorter windows come first, and longer ones refer to them.
void SkipTable::Make(const HuffmanTable& ac) {
  // After a symbol, the rest of a window is a shorter window, whose entry is added to the symbol's: the advance in the
  // upper byte, the number of bits in the lower one. Windows of n bits are at 1 << n. 0: there is no code.
  uint16_t entries_of_length[2 << kSkipBits];
  // Symbols that advance by 64 or more before the end-of-block code do not fit into a block. Then the entry contains
  // only the first symbol, and IsIrregular finds everything else that does not lead to a regular end.
  constexpr uint16_t kFar = 64 << 8;
  for (int bits = 0; bits <= kSkipBits; bits++) {
    uint16_t* const entries = entries_of_length + (1 << bits);
    const int n = ForEachCode(ac, bits, [&](int window, int windows, int code_bits, int value) {
      const Symbol symbol(/*is_ac=*/true, value);
      const auto first_symbol = static_cast<uint16_t>(symbol.advance << 8 | (code_bits + symbol.size));
      const int bits_left = bits - code_bits - symbol.size;
      uint16_t *to = entries + window, *const end = to + windows;
      if (bits_left <= 0 || symbol.advance == kAdvanceToEnd) {
        std::fill(to, end, first_symbol);
        return;
      }
      for (const uint16_t* following = entries_of_length + (1 << bits_left); to < end; to += 1 << bits_left) {
        for (int k = 0; k < 1 << bits_left; k++) {
          const auto sum = static_cast<uint16_t>(first_symbol + following[k]);
          to[k] = sum & kFar ? first_symbol : sum;
        }
      }
    });
    std::fill(entries + n, entries + (1 << bits), 0);
  }
  for (int window = 0; window < 1 << kSkipBits; window++) {
    const uint16_t entry = entries_of_length[window | 1 << kSkipBits];
    bits_[window] = static_cast<uint8_t>(entry);
    advance_[window] = entry ? entry >> 8 : kAdvanceToSlow;
  }
  is_made_ = true;
}

template class PairTable<kDcBits>;
template class PairTable<kAcBits>;

}  // namespace jaxdali::jpeg
