// Entropy decoding of a block: T.81, F.2.2. Compiled once for each kind of CPU, which `Isa` names.
//
// Note [Decoding loop]. Each iteration of the loop takes one or two symbols from a table (pair_table.h). Its time is
// its critical path: shift, load, shift, which are six cycles on Zen 4. Therefore the numbers of bits are in byte
// arrays: a load with a scaled index takes one cycle more, and so does one whose address is added up first (6 to 8 % of
// all decoding each). The remaining 23 or so instructions run in parallel with that. Slower alternatives, all measured:
// larger tables; computing the values that extend beyond the window with arithmetic or a branch; two images in lockstep
// (not enough registers); no branch at the end of a block; a refill of bits in every third iteration.
//
// Blocks that are skipped have their own table, whose look-ups take all symbols of a window. This saves a fifth of the
// time. Alternatives, measured: selecting the next block's table without a branch saves another twentieth, but needs a
// second loop; computing the next window's index by BEXTR with a control in the entry saves nothing.
//
// A refill leaves at least 56 bits. A look-up takes at most 20, because its code is shorter than the window and its
// magnitude has at most kMaxAcSize bits; when skipping it takes at most 22, because the code may fill the window. So 56
// bits are enough for two look-ups and the window of a third, which is read before the refill.
#ifndef JAXDALI_FFI_JPEG_BLOCK_H_
#define JAXDALI_FFI_JPEG_BLOCK_H_

#include <cstdint>
#include <cstring>

#include "ffi/common/vectors.h"
#include "ffi/jpeg/coefficients.h"
#include "ffi/jpeg/pair_table.h"

namespace jaxdali::jpeg {

// The coefficients of two blocks that lie side by side in their component, row by row: eight of the first block, eight
// of the second. After them comes a place that is never read. Damaged data, and entries that end a block, write beyond
// index 63, which goes there.
inline constexpr int kPairDump = 128, kPairSize = 144;

// Maps the zigzag index of a coefficient to its place in a pair. A step leads at most from index 63 over
// kAdvanceToSlow.
struct PairOrder {
  uint8_t place[256];

  constexpr PairOrder() : place{} {
    // Row y of the natural order begins at 16 * y in a pair, because the other block's row lies beside it.
    for (int k = 0; k < 64; k++) place[k] = static_cast<uint8_t>(NaturalOrder(k) / 8 * 16 + NaturalOrder(k) % 8);
    for (int k = 64; k < 256; k++) place[k] = kPairDump;
  }
};
alignas(64) constexpr PairOrder kPairOrder;  // not inline, so that its address is known without a look-up

// 64 bits of the data, the next one uppermost. At least 56 are valid after a refill.
struct Bits {
  const uint8_t* next;  // byte
  uint64_t window;
  uint32_t valid;

  static JAXDALI_INLINE Bits At(const uint8_t* bytes) {
    Bits b{bytes, /*window=*/0, /*valid=*/0};
    b.Refill();
    return b;
  }
  // Fills the window up to at least 56 valid bits.
  JAXDALI_INLINE void Refill() {
    uint64_t bytes;
    // Reads a whole word, but advances only over the bytes that fit completely. The window also has the first bits of
    // the next byte; the next refill ORs the same bits to the same place.
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

// The values that the next look-up waits for. They are loaded before the coefficients are stored, because a load after
// a store may have to wait for it.
struct Step {
  uint32_t bits, advance;

  template <class Table>
  static JAXDALI_INLINE Step At(const Table& table, uint64_t window) {
    return {table.BitsAt(window), table.AdvanceAt(window)};
  }
};

// Extracts bits of a window. The lower byte of `field` is the position of the lowest one, the upper byte their number.
// This is what x86's BEXTR does.
JAXDALI_INLINE uint32_t CutBits(uint64_t window, uint32_t field) {
  return static_cast<uint32_t>(window >> (field & 255)) & ((1u << (field >> 8)) - 1);
}

// Stores the coefficients of an entry, which was found by `window`. `order` points at the place of the next
// coefficient, `next` behind the place of the entry's last one (PairOrder).
template <class Isa>
JAXDALI_INLINE void Write(const PairEntry& entry, uint64_t window, const uint8_t* order, const uint8_t* next,
                          int16_t* block) {
  uint32_t tail = Isa::Cut(window, entry.tail);
  int32_t first = entry.first, second = entry.second;
  // As 32-bit registers, because writing only 16 bits of a register depends on its old contents.
  asm("" : "+r"(second));
  first += static_cast<int32_t>(tail);
  asm("" : "+r"(first));
  block[next[-1]] = static_cast<int16_t>(second);
  block[order[entry.run]] = static_cast<int16_t>(first);
}

// Whether the index is neither in the block, 1 to 64, nor at a regular end, 130 to 192, to which kAdvanceToEnd leads
// from 1 to 63. Indices of both ranges have bit 6 set after 63 is added.
JAXDALI_INLINE bool IsIrregular(int64_t index) { return !((index + 63) & 64); }

// Takes one symbol of any kind. Returns the new pointer into the order.
template <class Isa, class Table>
__attribute__((noinline, cold)) const uint8_t* DecodeSymbol(const Table& table, const uint8_t* order, int16_t* block,
                                                            Bits* bits) {
  const PairEntry entry = table.DecodeOne(bits->window);
  const uint8_t* next = order + entry.advance;
  if (block) Write<Isa>(entry, bits->window, order, next, block);
  bits->Drop(entry.bits);
  bits->Refill();
  return next;
}

// Two look-ups and the window of a third take at most the 56 bits that a refill leaves (see above).
static_assert(2 * (kSkipBits + kMaxAcSize) + kSkipBits <= 56);

// Decodes a block whose coefficients are zero, and adds the difference of its DC value to `dc`. Returns the index of
// the last coefficient, or one before the code that ended the block; -1: damaged. `table` is the AC table; with kSkip,
// which writes nothing, it may be the one for skipping.
template <class Isa, bool kSkip, class Table>
JAXDALI_INLINE int DecodeBlock(const DcTable& dc_table, const AcTable& ac_table, const Table& table, uint32_t* dc,
                               int16_t* block, Bits* state) {
  // `order` points at the place of coefficient k. Advancing the pointer advances k.
  const uint8_t *order = kPairOrder.place, *const end = order + 64, *next;
  Bits bits = *state;
  int16_t discarded[kSkip ? kPairSize : 1];  // DC goes here if the block is skipped
  int16_t* const output = kSkip ? discarded : block;
  const PairEntry* entry = dc_table.At(bits.window);
  Step step = Step::At(dc_table, bits.window);
  bits.Refill();
  next = order + step.advance;
  Write<Isa>(*entry, bits.window, order, next, output);
  // The table does not hold this DC code, so it is decoded alone.
  if (__builtin_expect(IsIrregular(next - kPairOrder.place), 0)) {
    Bits slow_bits = bits;
    next = DecodeSymbol<Isa>(dc_table, order, output, &slow_bits);
    bits = slow_bits;
    if (next != order + 1) return -1;  // a DC code leads from coefficient 0 to 1
  } else {
    bits.Drop(step.bits);
  }
  // The decoded difference is added to the prediction, the DC value of the component's previous block (F.2.2.1).
  *dc += static_cast<uint32_t>(output[0]);
  output[0] = static_cast<int16_t>(*dc);
  order = next;
  if (__builtin_expect(order < end, 1)) {
    for (;;) {
      uint64_t window;
      for (;;) {
        // Two look-ups for one refill.
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
      if (__builtin_expect(!IsIrregular(next - kPairOrder.place), 1)) break;
      // Back to before the look-up, to take one symbol alone. Either its code is long, or it fills the block and the
      // further symbols of the entry belong to the next block.
      bits.window = window;
      bits.valid += step.bits;
      Bits slow_bits = bits;
      next = DecodeSymbol<Isa>(ac_table, order, kSkip ? nullptr : block, &slow_bits);
      bits = slow_bits;
      if (IsIrregular(next - kPairOrder.place)) return -1;
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
