// Entropy decoding of a block: T.81, F.2.2. Compiled once for each kind of CPU, which `Isa` names.
//
// Note [Decoding loop]. Each turn of the loop takes one or two symbols from a table (pair_table.h). What it lasts is
// its critical path: shift, load, shift, six cycles on Zen 4. So the numbers of bits are bytes by themselves: there a
// load whose index is multiplied takes a cycle more, and one that waits for an address added up before it, too (6 to
// 8 % of all decoding each). The rest, about 23 instructions, fits in beside that. What was tried and is slower: larger
// tables; values computed with arithmetic or a branch for those that stick out of the window; two images in lock step
// (registers run out); no branch at the end of a block; bits filled up every third turn.
//
// Blocks that are skipped over have a table of their own, whose look-ups take all symbols of a window: a fifth less
// time. What was tried: selecting the next block's table without a branch gains another twentieth, and takes a loop of
// its own; the next window's index by BEXTR, of a control in the entry, gains nothing.
//
// A refill leaves 56 bits and more. A look-up takes 20 at most, since its code has fewer bits than the window and its
// magnitude no more than kMaxAcSize; when skipping 22, as the code may fill the window. That is enough for two of them
// and the window of a third, which is looked up before the bits are filled up again.
#ifndef JAXDALI_FFI_JPEG_BLOCK_H_
#define JAXDALI_FFI_JPEG_BLOCK_H_

#include <cstdint>
#include <cstring>

#include "ffi/common/vectors.h"
#include "ffi/jpeg/coefficients.h"
#include "ffi/jpeg/pair_table.h"

namespace jaxdali::jpeg {

// Two blocks, side by side in their component, lie row by row: eight coefficients of the one, eight of the other. Then
// comes a place that nobody reads, for what damaged data, and entries that end a block, put beyond index 63.
inline constexpr int kPairDump = 128, kPairSize = 144;

// Where the coefficient at an index of the zigzag order goes in its pair. A step leads at most from index 63 over
// kAdvanceToSlow.
struct PairOrder {
  uint8_t place[256];

  constexpr PairOrder() : place{} {
    for (int k = 0; k < 64; k++) place[k] = static_cast<uint8_t>(NaturalOrder(k) / 8 * 16 + NaturalOrder(k) % 8);
    for (int k = 64; k < 256; k++) place[k] = kPairDump;
  }
};
alignas(64) constexpr PairOrder kPairOrder;  // not inline: its address is then known without a look-up

// 64 bits of the data, the next one uppermost. At least 56 are valid after a refill.
struct Bits {
  const uint8_t* next;  // byte
  uint64_t window;
  uint32_t valid;

  static JAXDALI_INLINE Bits At(const uint8_t* bytes) {
    Bits b{bytes, 0, 0};
    b.Refill();
    return b;
  }
  JAXDALI_INLINE void Refill() {
    uint64_t bytes;
    std::memcpy(&bytes, next, 8);
    window |= __builtin_bswap64(bytes) >> valid;
    next += (63 - valid) >> 3;
    valid |= 56;
  }
  JAXDALI_INLINE void Drop(uint32_t bits) {
    window <<= bits & 63;
    valid -= bits;
  }
  // The first byte of which no bit was dropped.
  JAXDALI_INLINE const uint8_t* position() const { return next - (valid >> 3); }
};

// What the next look-up waits for, loaded ahead of the coefficients' stores: loads behind those may have to wait for
// them.
struct Step {
  uint32_t bits, advance;

  template <class Table>
  static JAXDALI_INLINE Step At(const Table& table, uint64_t window) {
    return {table.BitsAt(window), table.AdvanceAt(window)};
  }
};

// Bits of a window: where they begin in the lower byte, how many there are in the upper one.
JAXDALI_INLINE uint32_t CutBits(uint64_t window, uint32_t which) {
  return static_cast<uint32_t>(window >> (which & 255)) & ((1u << (which >> 8)) - 1);
}

// The entry's coefficients to their places; `window` is what it was looked up by.
template <class Isa>
JAXDALI_INLINE void Write(const PairEntry& entry, uint64_t window, const uint8_t* order, const uint8_t* next,
                          int16_t* block) {
  uint32_t tail = Isa::Cut(window, entry.tail);
  int32_t first = entry.first, second = entry.second;
  // As registers of 32 bits: writing 16 bits of one depends on what the rest of it was.
  asm("" : "+r"(second));
  first += static_cast<int32_t>(tail);
  asm("" : "+r"(first));
  block[next[-1]] = static_cast<int16_t>(second);
  block[order[entry.run]] = static_cast<int16_t>(first);
}

// Neither within the block, 1 to 64, nor at a regular end: what Meaning's advances lead to from indices 1 to 63.
JAXDALI_INLINE bool IsOdd(int64_t index) { return !((index + 63) & 64); }

// One symbol, whichever it is. Returns what the pointer into the order becomes.
template <class Isa, class Table>
__attribute__((noinline, cold)) const uint8_t* OneSymbol(const Table& table, const uint8_t* order, int16_t* block,
                                                         Bits* bits) {
  const PairEntry entry = table.One(bits->window);
  const uint8_t* next = order + entry.advance;
  if (block) Write<Isa>(entry, bits->window, order, next, block);
  bits->Drop(entry.bits);
  bits->Refill();
  return next;
}

static_assert(2 * (kSkipBits + kMaxAcSize) + kSkipBits <= 56);

// Decodes a block whose coefficients are zero, and its DC value's difference onto `dc`. Returns the index of the last
// coefficient, or one before the code that ended the block; -1: damaged. `table` is the AC table; with kSkip, when
// nothing is written, it may be the one for skipping.
template <class Isa, bool kSkip, class Table>
JAXDALI_INLINE int DecodeBlock(const DcTable& dc_table, const AcTable& ac_table, const Table& table, uint32_t* dc,
                               int16_t* block, Bits* state) {
  // `order` points at the place of coefficient k: advancing it advances k.
  const uint8_t *order = kPairOrder.place, *const end = order + 64, *next;
  Bits bits = *state;
  int16_t first[kSkip ? kPairSize : 1];  // where DC goes when nothing else is wanted
  int16_t* const to = kSkip ? first : block;
  const PairEntry* entry = dc_table.At(bits.window);
  Step step = Step::At(dc_table, bits.window);
  bits.Refill();
  next = order + step.advance;
  Write<Isa>(*entry, bits.window, order, next, to);
  if (__builtin_expect(IsOdd(next - kPairOrder.place), 0)) {
    Bits rare = bits;
    next = OneSymbol<Isa>(dc_table, order, to, &rare);
    bits = rare;
    if (next != order + 1) return -1;
  } else {
    bits.Drop(step.bits);
  }
  *dc += static_cast<uint32_t>(to[0]);
  to[0] = static_cast<int16_t>(*dc);
  order = next;
  if (__builtin_expect(order < end, 1)) {
    for (;;) {
      uint64_t window;
      for (;;) {
        if constexpr (!kSkip) entry = table.At(bits.window);
        step = Step::At(table, bits.window);
        bits.Refill();
        window = bits.window;
        next = order + step.advance;
        if (!kSkip) Write<Isa>(*entry, window, order, next, block);
        bits.Drop(step.bits);
        if (next >= end) break;
        order = next;
        if constexpr (!kSkip) entry = table.At(bits.window);
        step = Step::At(table, bits.window);
        window = bits.window;
        next = order + step.advance;
        if (!kSkip) Write<Isa>(*entry, window, order, next, block);
        bits.Drop(step.bits);
        if (next >= end) break;
        order = next;
      }
      if (__builtin_expect(!IsOdd(next - kPairOrder.place), 1)) break;
      // Back to before the look-up, and one symbol by itself: its code is long, or it fills the block and the further
      // symbols of the entry were the next block's.
      bits.window = window;
      bits.valid += step.bits;
      Bits rare = bits;
      next = OneSymbol<Isa>(ac_table, order, kSkip ? nullptr : block, &rare);
      bits = rare;
      if (IsOdd(next - kPairOrder.place)) return -1;
      if (next >= end) break;
      order = next;
    }
  }
  *state = bits;
  const int index = static_cast<int>(next - kPairOrder.place);
  return index == 64 ? 63 : index - kAdvanceToEnd - 1;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BLOCK_H_
