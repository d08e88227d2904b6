// Look-up tables that return up to two coefficients of a block at a time, or skip all that a window holds: Huffman
// codes (T.81, F.2.2.3) together with the magnitudes after them (F.2.2.1, F.2.2.2).
//
// Two thirds of a photo's coefficients have a code and a magnitude of at most eight bits together, so a window of
// eleven bits usually holds two of them. The tables stay in the L1 cache (18 KB for AC, 2 KB for DC). Larger ones would
// hold more pairs but be slower, because random bits hit all entries alike.
#ifndef JAXDALI_FFI_JPEG_PAIR_TABLE_H_
#define JAXDALI_FFI_JPEG_PAIR_TABLE_H_

#include <cstdint>

#include "ffi/jpeg/header.h"

namespace jaxdali::jpeg {

inline constexpr int kDcBits = 8, kAcBits = 11, kSkipBits = 12;  // of a window

// The largest sizes in baseline data: T.81, tables F.1 and F.2. Larger ones would not fit into the bits that a refill
// leaves.
inline constexpr int kMaxDcSize = 11, kMaxAcSize = 10;

// How far an entry advances the index of a coefficient. Entries that end the block, and rare ones, lead beyond index
// 63, so that the decoding loop needs only one test.
inline constexpr int kAdvanceToEnd = 129;   // end-of-block code
inline constexpr int kAdvanceToSlow = 193;  // a symbol that the table does not hold

// The decoded start of a window: one or two coefficients. The second one goes to the last index that `advance` passes.
// It is written before the first one, so that the first one wins if there is no second and both have the same place.
//
// Fields are loaded one by one, because shifting them out of one word would need more of the few shifts that a CPU does
// at once.
struct PairEntry {
  uint8_t bits;     // of all codes and magnitudes
  uint8_t advance;  // of the index
  // The lowest bits of the first magnitude that are outside the window: the number of the bit where they begin and, in
  // the upper byte, how many there are. This is the operand of BEXTR.
  uint16_t tail;
  int16_t first;  // without the tail
  uint8_t run;    // zeros before it
  int8_t second;
};
static_assert(sizeof(PairEntry) == 8);

// Decodes single codes of any length, by the ranges of canonical codes (T.81, F.2.2.3, DECODE).
class CanonicalCodes {
 public:
  struct Code {
    int bits;  // 0: no code
    int value;
  };

  void Make(const HuffmanTable& table);
  // The code at the start of a window.
  Code Find(uint32_t window16) const;

 private:
  uint32_t limit_[17];  // codes of l bits are those below limit_[l], left-aligned in 16 bits
  int32_t offset_[17];  // such a code's value is value_[code + offset_[l]]
  uint8_t value_[256];
};

template <int kBits>
class alignas(64) PairTable {
 public:
  // `next`: the table for the codes after this table's first one, which is the AC table (also after a DC code).
  void Make(const HuffmanTable& table, const HuffmanTable& next);

  static uint64_t Index(uint64_t window) { return window >> (64 - kBits); }
  const PairEntry* At(uint64_t window) const { return &entry_[Index(window)]; }
  // The fields of an entry, from separate arrays: see Note [Decoding loop].
  uint8_t BitsAt(uint64_t window) const { return bits_[Index(window)]; }
  uint8_t AdvanceAt(uint64_t window) const { return At(window)->advance; }

  // Decodes one symbol of any length. Advances by kAdvanceToSlow if there is no such code.
  PairEntry DecodeOne(uint64_t window) const;

 private:
  PairEntry entry_[1 << kBits];
  uint8_t bits_[1 << kBits];
  CanonicalCodes codes_;
  bool is_ac_;
};

using DcTable = PairTable<kDcBits>;
using AcTable = PairTable<kAcBits>;

// Skips AC coefficients: bits and advance of all symbols at the start of a window, up to the end-of-block code. The
// last symbol's magnitude may extend beyond the window. Entries have two bytes, so windows can have 12 bits (8 KB). 13
// bits would save another 7 % of the look-ups, but cost as much in cache misses.
class alignas(64) SkipTable {
 public:
  void Make(const HuffmanTable& ac);
  void Clear() { is_made_ = false; }
  bool is_made() const { return is_made_; }

  uint8_t BitsAt(uint64_t window) const { return bits_[window >> (64 - kSkipBits)]; }
  uint8_t AdvanceAt(uint64_t window) const { return advance_[window >> (64 - kSkipBits)]; }

 private:
  uint8_t bits_[1 << kSkipBits], advance_[1 << kSkipBits];
  bool is_made_ = false;
};

// Whether the table is baseline: no magnitude has more bits than those of tables F.1 and F.2.
bool IsBaseline(const HuffmanTable& table);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_PAIR_TABLE_H_
