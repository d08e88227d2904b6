// Huffman codes on the device: look-up tables, and how an image's threads build them. A look-up gives one symbol (final
// decoding), or all symbols within a window (guessing, where only the state counts). Codes are canonical (T.81, Annex
// C).
#ifndef JAXDALI_FFI_CUDA_JPEG_HUFFMAN_H_
#define JAXDALI_FFI_CUDA_JPEG_HUFFMAN_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/jpeg/coefficients.h"

namespace jaxdali::jpeg {

inline constexpr int kLookupBits = 10;  // 0.5 % of a photo's symbols have longer codes

inline constexpr int kMaxSymbolBits = 31;  // a code of 16 bits and a magnitude of 15

// A symbol: the decoded meaning of a code. Bits 0-4: length of the code and of the magnitude after it, together. Bits
// 5-8: length of the magnitude. Bits 9-15: how far the coefficient's index advances; kEndOfBlock for the code that ends
// a block. Never 0.
inline constexpr int kEndOfBlock = 127;
// The symbol that a guess takes where there is no code: one bit, and an index past the last one.
inline constexpr uint32_t kNoCode = 1 | 65u << 9;

// The fields of a symbol: length of code and magnitude together, length of the magnitude, advance of the index.
JAXDALI_HD constexpr uint32_t LengthOf(uint32_t symbol) { return symbol & 31; }
JAXDALI_HD constexpr uint32_t MagnitudeLengthOf(uint32_t symbol) { return symbol >> 5 & 15; }
JAXDALI_HD constexpr uint32_t AdvanceOf(uint32_t symbol) { return symbol >> 9; }

// The symbol of a code. `value`: the code's value in the Huffman table; for AC its upper half is the run of zeros
// before the coefficient (F.1.2.2). Run 15 without a magnitude stands for 16 zeros (ZRL).
JAXDALI_HD inline uint32_t MakeSymbol(bool is_ac, int code_bits, int value) {
  const int size = value & 15, run = value >> 4;
  const int advance = !is_ac ? 1 : size ? run + 1 : run == 15 ? 16 : kEndOfBlock;
  return static_cast<uint32_t>(code_bits + size) | static_cast<uint32_t>(size) << 5 |
         static_cast<uint32_t>(advance) << 9;
}

// A group: all symbols of a block whose codes lie within kLookupBits bits. It is used where only the final state
// counts. Bits 0-4: length of the codes and magnitudes. Bit 8: the last symbol ends the block. Bits 9-15: how far the
// index advances. kNoGroup means that there is no such symbol; its advance is too large for any index.
inline constexpr uint32_t kEndsBlock = 1u << 8, kNoGroup = 127u << 9;

// The meaning of the first kLookupBits bits. Guesses read both at once, as a word with the symbol in the lower half.
struct alignas(4) Meaning {
  uint16_t symbol;  // 0: the code is longer, or there is none
  uint16_t group;
};
// Fields of a Meaning that was read as a word. The group's length is the word's third byte: the selectors take byte 2
// and zeros. The group's upper byte is twice the advance of the index, plus 1 if the group ends the block.
JAXDALI_HD inline uint32_t SymbolOf(uint32_t meaning) { return meaning & 0xFFFF; }
JAXDALI_HD inline uint32_t GroupLengthOf(uint32_t meaning) { return Permute(meaning, 0, 0x4442); }
JAXDALI_HD inline uint32_t DoubledAdvanceOf(uint32_t meaning) { return meaning >> 24; }

// The look-up table of a Huffman table, built on the device.
struct alignas(16) Lookup {
  Meaning meaning[1 << kLookupBits];  // the first member, see ScanView
  uint32_t limit[17];                 // codes of l bits are those below limit[l], left-aligned in 16 bits; ascends
  int32_t offset[17];                 // such a code's value is value[code + offset[l]]
  uint8_t value[256];
  uint32_t is_ac;

  // The symbol of the code of `code_bits` bits at the start of a window of 16 bits.
  JAXDALI_HD uint32_t Symbol(int code_bits, uint32_t window16) const {
    const int index = static_cast<int>(window16 >> (16 - code_bits)) + offset[code_bits];
    return MakeSymbol(is_ac, code_bits, value[index & 255]);
  }

  // The group at the start of kLookupBits bits. `follower`: the table for the codes after this one's first, or null.
  JAXDALI_HD uint32_t Group(uint32_t bits, const Lookup* follower) const {
    uint32_t length = 0, advance = 0;
    for (const Lookup* table = this; table && length < kLookupBits; table = follower) {
      // The symbol that begins after `length` bits. The window is filled up with zeros.
      const uint32_t next = table->meaning[bits << length & ((1 << kLookupBits) - 1)].symbol, step = AdvanceOf(next);
      const uint32_t code_bits = LengthOf(next) - MagnitudeLengthOf(next);
      // A code that is not wholly in the window: `symbol` may depend on bits beyond it.
      if (next == 0 || length + code_bits > kLookupBits) break;
      if (step == kEndOfBlock) return (length + code_bits) | advance << 9 | kEndsBlock;
      if (advance + step > 63) break;  // it may lead past the block's last coefficient
      length += LengthOf(next);
      advance += step;
    }
    return length ? length | advance << 9 : kNoGroup;
  }

  // The meaning of the code at the start of a window. 0: there is no code.
  JAXDALI_HD uint32_t Read(uint32_t window) const {
    const uint32_t symbol = meaning[window >> (32 - kLookupBits)].symbol;
    return symbol ? symbol : ReadLong(window >> 16);
  }

  // The same for a code of more than kLookupBits bits. Some thread of a warp often has one, and all wait for it, so the
  // lengths are compared at once.
  JAXDALI_HD uint32_t ReadLong(uint32_t window16) const {
    int bits = kLookupBits + 1;
    JAXDALI_UNROLL
    for (int length = kLookupBits + 1; length < 16; length++) bits += window16 >= limit[length];
    return window16 < limit[16] ? Symbol(bits, window16) : 0;
  }
};
static_assert(sizeof(Lookup) % 16 == 0, "copied sixteen bytes at a time");

// The place of the k-th coefficient in zigzag order if blocks are stored column by column.
JAXDALI_HD inline uint8_t ColumnOrder(int k) {
  const uint8_t place = NaturalOrder(k);
  return static_cast<uint8_t>(place % 8 * 8 + place / 8);
}

// Builds the look-up tables of an image with all threads of a block, in four phases: the limits of code lengths, the
// values, symbols from both, and groups from symbols.
template <class Block>
JAXDALI_HD void BuildLookups(const Block& block, const ImageTable& image, Lookup* lookups) {
  const HuffmanTable* tables = image.table;
  const int n = image.tables;
  // `limit` and `offset`, one thread for each table. `code` is the first code of a length, `sum` the number of shorter
  // codes (T.81, Annex C).
  block.Phase([&](int thread) {
    if (thread >= n) return;
    Lookup& lookup = lookups[thread];
    uint32_t code = 0, sum = 0;
    lookup.limit[0] = 0;
    lookup.offset[0] = 0;
    lookup.is_ac = tables[thread].is_ac;
    for (int code_length = 1; code_length <= 16; code_length++) {
      const uint32_t count = tables[thread].count[code_length - 1];
      lookup.offset[code_length] = static_cast<int32_t>(sum) - static_cast<int32_t>(code);
      code += count;
      sum += count;
      lookup.limit[code_length] = code << (16 - code_length);
      code <<= 1;
    }
  });
  // The values, in the order of their codes.
  block.Phase([&](int thread) {
    for (int table = 0; table < n; table++)
      for (int i = thread; i < 256; i += kThreads) lookups[table].value[i] = tables[table].value[i];
  });
  // The symbol at the start of each window i, filled up with zeros. 0: no code of at most kLookupBits bits.
  block.Phase([&](int thread) {
    for (int table = 0; table < n; table++) {
      Lookup& lookup = lookups[table];
      for (int i = thread; i < 1 << kLookupBits; i += kThreads) {
        const uint32_t window16 = static_cast<uint32_t>(i) << (16 - kLookupBits);
        int code_length = 1;
        while (code_length <= kLookupBits && window16 >= lookup.limit[code_length]) code_length++;
        lookup.meaning[i].symbol =
            static_cast<uint16_t>(code_length <= kLookupBits ? lookup.Symbol(code_length, window16) : 0);
      }
    }
  });
  // The group at the start of each window i, from the symbols of this table and of the one that follows it.
  block.Phase([&](int thread) {
    for (int table = 0; table < n; table++) {
      const Lookup* follower = image.follower[table] >= 0 ? lookups + image.follower[table] : nullptr;
      for (int i = thread; i < 1 << kLookupBits; i += kThreads)
        lookups[table].meaning[i].group =
            static_cast<uint16_t>(lookups[table].Group(static_cast<uint32_t>(i), follower));
    }
  });
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_HUFFMAN_H_
