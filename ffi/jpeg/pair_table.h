// Look-up tables that give up to two coefficients of a block at a time, or skip over as many as there are: Huffman
// codes (T.81, F.2.2.3) together with the magnitudes after them (F.2.2.1, F.2.2.2).
//
// Two thirds of a photo's coefficients have a code and a magnitude of at most eight bits together: a window of eleven
// holds two of them more often than not. The tables stay in the L1 cache (18 KB for AC, 2 KB for DC); larger ones would
// hold more pairs and be slower, since random bits hit all entries alike.
#ifndef JAXDALI_FFI_JPEG_PAIR_TABLE_H_
#define JAXDALI_FFI_JPEG_PAIR_TABLE_H_

#include <cstdint>

#include "ffi/jpeg/header.h"

namespace jaxdali::jpeg {

inline constexpr int kDcBits = 8, kAcBits = 11, kSkipBits = 12;  // of a window

// What baseline data have: T.81, tables F.1 and F.2. Greater sizes would not fit into the bits that a refill leaves.
inline constexpr int kMaxDcSize = 11, kMaxAcSize = 10;

// By how much an entry advances the index of a coefficient. Whatever ends the block, and all that is rare, leads beyond
// index 63, so that the decoding loop has one test.
inline constexpr int kAdvanceToEnd = 129;   // the code that ends a block
inline constexpr int kAdvanceToSlow = 193;  // a symbol that the table does not hold

// What a window begins with. The second coefficient goes to the last index of those that `advance` goes over, and is
// written before the first: where there is no second one, both have the same place.
//
// Fields are loaded one by one: shifting them out of one word takes more of the few shifts that a CPU does at once.
struct PairEntry {
  uint8_t bits;     // of all codes and magnitudes
  uint8_t advance;  // of the index
  // The lowest bits of the first magnitude, as far as they lie outside the window: the number of the bit where they
  // begin and, in the upper byte, how many they are. What BEXTR takes.
  uint16_t tail;
  int16_t first;  // without the tail
  uint8_t run;    // of zeros before it
  int8_t second;
};
static_assert(sizeof(PairEntry) == 8);

// Codes one by one, of any length.
class Codes {
 public:
  struct Code {
    int bits;  // 0: none
    int value;
  };

  void Make(const HuffmanTable& table);
  // What the upper bits of a window begin with.
  Code Find(uint32_t window16) const;

 private:
  uint32_t limit_[17];  // codes of l bits are those below limit_[l], left-aligned in 16 bits
  int32_t offset_[17];  // such a code's value is value_[code + offset_[l]]
  uint8_t value_[256];
};

template <int kBits>
class alignas(64) PairTable {
 public:
  // `next`: what codes after this table's first one are of, the AC table.
  void Make(const HuffmanTable& table, const HuffmanTable& next);

  static uint64_t Index(uint64_t window) { return window >> (64 - kBits); }
  const PairEntry* At(uint64_t window) const { return &entry_[Index(window)]; }
  // The entry's, by themselves: see Note [Decoding loop].
  uint8_t BitsAt(uint64_t window) const { return bits_[Index(window)]; }
  uint8_t AdvanceAt(uint64_t window) const { return At(window)->advance; }

  // One symbol, whichever it is; advances by kAdvanceToSlow where there is none.
  PairEntry One(uint64_t window) const;

 private:
  PairEntry entry_[1 << kBits];
  uint8_t bits_[1 << kBits];
  Codes codes_;
  bool is_ac_;
};

using DcTable = PairTable<kDcBits>;
using AcTable = PairTable<kAcBits>;

// For skipping over AC coefficients: bits and advance of all symbols that a window begins with, up to the code that
// ends the block. The last one's magnitude may stick out of the window. Entries take two bytes, so that windows may
// have 12 bits (8 KB); with 13 there are another 7 % fewer look-ups, which the caches take back.
class alignas(64) SkipTable {
 public:
  void Make(const HuffmanTable& ac);
  void Clear() { made_ = false; }
  bool made() const { return made_; }

  uint8_t BitsAt(uint64_t window) const { return bits_[window >> (64 - kSkipBits)]; }
  uint8_t AdvanceAt(uint64_t window) const { return advance_[window >> (64 - kSkipBits)]; }

 private:
  uint8_t bits_[1 << kSkipBits], advance_[1 << kSkipBits];
  bool made_ = false;
};

// Baseline: no magnitude of more bits than tables F.1 and F.2 have.
bool IsBaseline(const HuffmanTable& table);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_PAIR_TABLE_H_
