// Progressive files: scans give the coefficients (T.81, Annex G) of the whole image, from which bands are then
// transformed. Compiled once for each kind of CPU, which `Isa` names.
//
// There are four kinds of scans: DC or AC (spectral selection), each as a first scan or as a refinement by one bit
// (successive approximation). DecodeScan calls the function for its kind, block by block: DecodeDcFirst, two lines for
// DC's refinement, DecodeAcFirst, DecodeAcRefine.
//
// Blocks are stored in pairs, as the transforms need them, with a bit mask of each block's nonzero coefficients. A
// refining scan uses it to go from one to the next without reading the others.
#ifndef JAXDALI_FFI_JPEG_PROGRESSIVE_H_
#define JAXDALI_FFI_JPEG_PROGRESSIVE_H_

#include <cstdint>

#include "ffi/jpeg/block.h"
#include "ffi/jpeg/header.h"
#include "ffi/jpeg/scan_bytes.h"

namespace jaxdali::jpeg {

inline constexpr int kStoredPair = 128;  // coefficients

// The coefficients of a component.
struct StoredPlane {
  int16_t* pairs;  // [rows][pair columns][kStoredPair]
  // [rows][2 * pair columns]: a mask of each block's nonzero coefficients, the first one in zigzag order uppermost.
  uint64_t* present;
  int pair_columns;
  int columns, rows;  // of blocks, without those that pad MCUs

  JAXDALI_INLINE int64_t Number(int row, int column) const { return int64_t{row} * 2 * pair_columns + column; }
  // The block's first coefficient.
  JAXDALI_INLINE int16_t* Block(int64_t number) const { return pairs + number / 2 * kStoredPair + number % 2 * 8; }
};

// The decoded start of a window in a scan: a code, and as much of the magnitude after it as the window holds. kValue:
// code and magnitude. kMagnitude: a code whose magnitude the window does not hold. kRun: an end-of-band code (EOBn),
// whose run of blocks has `run` more bits. kZeros: 16 zeros (ZRL). kOther: a code that is longer than the window.
class alignas(64) CodeTable {
 public:
  enum Kind : uint8_t { kValue, kMagnitude, kRun, kZeros, kOther };
  struct Entry {
    int16_t value;  // kValue: the coefficient; kMagnitude: its number of bits
    uint8_t bits;
    uint8_t run : 4, kind : 4;
  };
  static constexpr int kWindow = 10;

  // The use of the table: for DC, for AC's first scans, or for those that refine it, where a value is 1, -1, or 0 for a
  // run of zeros.
  enum Use { kDc, kFirst, kRefine };
  void Make(const HuffmanTable& table, Use use);
  JAXDALI_INLINE Entry At(uint64_t window) const { return entry_[window >> (64 - kWindow)]; }
  // Finds a code that is longer than the window. Bits are 0 if there is none.
  Entry Find(uint64_t window) const;

 private:
  Entry MakeEntry(int symbol, int bits) const;

  Entry entry_[1 << kWindow];
  CanonicalCodes codes_;
  Use use_ = kDc;
};

// One scan.
struct StoredScan {
  ScanBytes* bytes;
  Bits bits;
  struct Component {
    StoredPlane* plane;
    const CodeTable* table;
    int h, v;  // blocks in an MCU
  } component[4];
  int components;
  int mcu_columns, mcu_rows, restart_interval;
  int first, last, high, low;  // spectral selection, successive approximation
};

// Moves the lowest bits to the places of the bits set in `mask`, like x86's PDEP.
JAXDALI_INLINE uint64_t DepositBits(uint64_t bits, uint64_t mask) {
  uint64_t result = 0;
  for (; bits; bits >>= 1, mask &= mask - 1) result |= bits & 1 ? mask & -mask : 0;
  return result;
}

// The n uppermost bits, 0 <= n <= 63. Two shifts, because one by 64 would be undefined.
JAXDALI_INLINE uint64_t TopBits(uint64_t window, int n) { return window >> 1 >> (63 - n); }

// The value of a coefficient from the bits after its code. Also drops the code.
JAXDALI_INLINE int DecodeMagnitude(Bits* bits, CodeTable::Entry e) {
  bits->Drop(e.bits);
  const int size = e.value, v = static_cast<int>(TopBits(bits->window, size));
  bits->Drop(static_cast<uint32_t>(size));
  return Extend(static_cast<uint32_t>(v), size);
}

// DC's first scan: the difference to the prediction, as in sequential files, then a shift by `low` bits (G.1.2.1).
// False: damaged, or a value that exceeds 16 bits.
JAXDALI_INLINE bool DecodeDcFirst(const CodeTable& table, int low, int32_t* dc, int16_t* block, Bits* bits) {
  bits->Refill();
  CodeTable::Entry e = table.At(bits->window);
  if (e.kind == CodeTable::kOther) {
    e = table.Find(bits->window);
    if (e.bits == 0) return false;
  }
  if (e.value > kMaxDcSize) return false;
  *dc += DecodeMagnitude(bits, e);
  const int32_t v = *dc * (1 << low);
  block[0] = static_cast<int16_t>(v);
  return v == block[0];
}

// AC's first scan of a block, coefficients first .. last (G.1.2.2). Returns the number of following blocks without
// further coefficients (the EOB run); -1: damaged.
JAXDALI_INLINE int DecodeAcFirst(const StoredScan& s, const CodeTable& table, int16_t* block, uint64_t* present,
                                 Bits* state) {
  Bits bits = *state;
  uint64_t mask = *present;
  int k = s.first, run = 0;
  const int last = s.last, low = s.low;
  while (k <= last) {
    bits.Refill();
    CodeTable::Entry e = table.At(bits.window);
    int value = e.value;
    if (__builtin_expect(e.kind == CodeTable::kValue, 1)) {
      bits.Drop(e.bits);
    } else {
      if (e.kind == CodeTable::kOther) {
        e = table.Find(bits.window);
        if (e.bits == 0) return -1;
      }
      if (e.kind == CodeTable::kZeros) {
        bits.Drop(e.bits);
        k += 16;
        continue;
      }
      if (e.kind == CodeTable::kRun) {
        bits.Drop(e.bits);
        // EOBn: a run of 2^n blocks or more, given by n further bits, of which this one is the first (G.1.2.2).
        run = (1 << e.run) - 1 + static_cast<int>(TopBits(bits.window, e.run));
        bits.Drop(e.run);
        break;
      }
      // After the shift by `low` bits the value must fit into 16 bits.
      if (e.value + low > 14 || e.value > kMaxAcSize) return -1;
      value = DecodeMagnitude(&bits, e);
    }
    k += e.run;
    if (__builtin_expect(k > last, 0)) return -1;
    block[kPairOrder.place[k]] = static_cast<int16_t>(value * (1 << low));
    mask |= uint64_t{1} << (63 - k++);
  }
  // A ZRL led beyond the band.
  if (k > last + 1) return -1;
  *present = mask;
  *state = bits;
  return run;
}

// Reads one more bit of each coefficient in `mask`, from the first to the last, of which there are at most 32. Returns
// those whose bit is set.
template <class Isa>
JAXDALI_INLINE uint64_t ReadFewCorrections(uint64_t mask, Bits* bits) {
  const int n = __builtin_popcountll(mask);
  const uint64_t set_bits = Isa::Deposit(TopBits(bits->window, n), mask);
  bits->Drop(static_cast<uint32_t>(n));
  return set_bits;
}
// The same for up to 63 coefficients: two times, with a refill between.
template <class Isa>
JAXDALI_INLINE uint64_t ReadCorrections(uint64_t mask, Bits* bits) {
  if (__builtin_expect(__builtin_popcountll(mask) <= 32, 1)) return ReadFewCorrections<Isa>(mask, bits);
  const uint64_t upper = mask >> 32 << 32, set_bits = ReadFewCorrections<Isa>(upper, bits);
  bits->Refill();
  return set_bits | ReadFewCorrections<Isa>(mask ^ upper, bits);
}

// AC's refinement of a block (G.1.2.3): one more bit of each nonzero coefficient, and coefficients that become 1 or -1
// at this bit position. A code gives the number of zero coefficients before the new one; correction bits of the nonzero
// ones that are passed follow it. `run`: number of blocks without new coefficients, including this one, which is 0 if
// unknown. Returns the run of the next block; -1: damaged.
template <class Isa>
JAXDALI_INLINE int DecodeAcRefine(const StoredScan& s, const CodeTable& table, int run, int16_t* block,
                                  uint64_t* present, Bits* state) {
  Bits bits = *state;
  // The bits of coefficients first .. last; coefficient 0 has the uppermost bit.
  const uint64_t band = ~uint64_t{0} >> s.first & ~uint64_t{0} << (63 - s.last), nonzero = *present & band;
  // Masks like `present`. remaining: not processed yet.
  uint64_t zeros = band ^ nonzero, remaining = band, corrected = 0, added = 0;
  while (run == 0 && remaining) {
    bits.Refill();
    CodeTable::Entry e = table.At(bits.window);
    if (__builtin_expect(e.kind != CodeTable::kValue, 0)) {
      if (e.kind == CodeTable::kOther) {
        e = table.Find(bits.window);
        if (e.bits == 0) return -1;
      }
      bits.Drop(e.bits);
      if (e.kind == CodeTable::kRun) {
        run = (1 << e.run) + static_cast<int>(TopBits(bits.window, e.run));
        bits.Drop(e.run);
        break;
      }
      if (e.kind == CodeTable::kMagnitude) {
        if (e.value != 1) return -1;  // a new coefficient has one bit, its sign
        e.value = static_cast<int64_t>(bits.window) < 0 ? 1 : -1;
        bits.Drop(1);
      }
    } else {
      bits.Drop(e.bits);
    }
    // The new coefficient is the one after e.run zeros, of which the first ones are uppermost in the mask.
    const int count = __builtin_popcountll(zeros) - 1 - e.run;
    if (__builtin_expect(count < 0, 0)) return -1;
    const uint64_t new_bit = Isa::Deposit(uint64_t{1} << count, zeros), later = new_bit - 1;
    // The nonzero coefficients before it are corrected. `later` has the bits of those after it.
    corrected |= ReadCorrections<Isa>(nonzero & remaining & ~(later << 1 | 1), &bits);
    block[kPairOrder.place[63 - __builtin_ctzll(new_bit)]] = static_cast<int16_t>(e.value * (1 << s.low));
    added |= e.value ? new_bit : 0;
    zeros &= later;
    remaining &= later;
  }
  // Within a run, all remaining nonzero coefficients are corrected.
  if (run > 0) {
    bits.Refill();
    corrected |= ReadCorrections<Isa>(nonzero & remaining, &bits);
    run--;
  }
  // A correction moves the value away from zero. As in libjpeg, nothing is done where the bit is already set.
  for (; corrected; corrected &= corrected - 1) {
    int16_t* coefficient = block + kPairOrder.place[63 - __builtin_ctzll(corrected)];
    const int v = *coefficient, bit = 1 << s.low;
    if ((v & bit) == 0) *coefficient = static_cast<int16_t>(v < 0 ? v - bit : v + bit);
  }
  *present |= added;
  *state = bits;
  return run;
}

// Decodes a scan of the whole image. A scan of one component has a block per MCU, without those that only fill up MCUs
// (A.2.2). False: the data are damaged.
template <class Isa>
bool DecodeScan(StoredScan* scan) {
  StoredScan& s = *scan;
  Bits bits = s.bits;
  int until_restart = s.restart_interval, restarts = 0, run = 0;
  int32_t dc[4] = {};
  // Whether the data end at this marker, with no byte missing or left over, and no EOB run goes on.
  auto ends_at = [&](int marker) {
    return run == 0 && s.bytes->complete() && bits.position() == s.bytes->filled() && s.bytes->marker() == marker;
  };
  for (int y = 0; y < s.mcu_rows; y++) {
    for (int x = 0; x < s.mcu_columns; x++) {
      if (s.restart_interval > 0 && until_restart-- == 0) {
        // Restart markers RST0 to RST7 have the codes D0 to D7 in turn (B.1.1.3, E.2.4).
        if (!ends_at(0xD0 + (restarts++ & 7))) return false;
        bits = Bits::At(s.bytes->StartBehindMarker());
        for (int32_t& v : dc) v = 0;
        until_restart = s.restart_interval - 1;
      }
      if (bits.next > s.bytes->limit()) {
        if (s.bytes->complete()) return false;
        bits.next = s.bytes->Continue(bits.next);
      }
      // first > 0: a scan of AC, which always has one component.
      if (s.first > 0) {
        const StoredPlane& plane = *s.component[0].plane;
        const int64_t number = plane.Number(y, x);
        if (s.high == 0 && run > 0) {
          run--;
          continue;
        }
        uint64_t* present = plane.present + number;
        run = s.high == 0 ? DecodeAcFirst(s, *s.component[0].table, plane.Block(number), present, &bits)
                          : DecodeAcRefine<Isa>(s, *s.component[0].table, run, plane.Block(number), present, &bits);
        if (run < 0) return false;
        continue;
      }
      for (int c = 0; c < s.components; c++) {
        const StoredScan::Component& component = s.component[c];
        for (int by = 0; by < component.v; by++) {
          for (int bx = 0; bx < component.h; bx++) {
            int16_t* block =
                component.plane->Block(component.plane->Number(y * component.v + by, x * component.h + bx));
            if (s.high == 0) {
              if (!DecodeDcFirst(*component.table, s.low, &dc[c], block, &bits)) return false;
            } else {
              // A refinement of DC: the next bit of each value, without a code (G.1.2.1).
              bits.Refill();
              block[0] = static_cast<int16_t>(block[0] | static_cast<int>(bits.window >> 63) << s.low);
              bits.Drop(1);
            }
          }
        }
      }
    }
  }
  s.bits = bits;
  return run == 0 && s.bytes->complete() && bits.position() == s.bytes->filled();
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_PROGRESSIVE_H_
