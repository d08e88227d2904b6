// Progressive files: scans give the coefficients (T.81, Annex G) of the whole image, from which bands are then
// transformed. Compiled once for each kind of CPU, which `Isa` names.
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
  int16_t* pairs;     // [rows][pair columns][kStoredPair]
  uint64_t* present;  // [rows][2 * pair columns], the first one in zigzag order uppermost
  int pair_columns;
  int columns, rows;  // of blocks, without those that pad MCUs

  JAXDALI_INLINE int64_t Number(int row, int column) const { return int64_t{row} * 2 * pair_columns + column; }
  // The block's first coefficient.
  JAXDALI_INLINE int16_t* Block(int64_t number) const { return pairs + number / 2 * kStoredPair + number % 2 * 8; }
};

// The meaning of the start of a window in a first scan: a code, and as much of the magnitude after it as the window
// holds.
class alignas(64) CodeTable {
 public:
  enum Kind : uint8_t { kValue, kMagnitude, kRun, kZeros, kOther };
  struct Entry {
    int16_t value;  // kValue: the coefficient; kMagnitude: its number of bits
    uint8_t bits;
    uint8_t run : 4, kind : 4;
  };
  static constexpr int kWindow = 10;

  // For DC, for AC's first scans, or for those that refine it, where a value is 1, -1, or 0 for a run of zeros.
  enum Use { kDc, kFirst, kRefine };
  void Make(const HuffmanTable& table, Use use);
  JAXDALI_INLINE Entry At(uint64_t window) const { return entry_[window >> (64 - kWindow)]; }
  // Finds a code that is longer than the window. Bits are 0 if there is none.
  Entry Find(uint64_t window) const;

 private:
  Entry Of(int symbol, int bits) const;

  Entry entry_[1 << kWindow];
  Codes codes_;
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

// Moves the lowest bits to the places of the bits set in `which`, like x86's PDEP.
JAXDALI_INLINE uint64_t DepositBits(uint64_t bits, uint64_t which) {
  uint64_t result = 0;
  for (; bits; bits >>= 1, which &= which - 1) result |= bits & 1 ? which & -which : 0;
  return result;
}

JAXDALI_INLINE uint64_t Upper(uint64_t window, int n) { return window >> 1 >> (63 - n); }

// The bits of a coefficient after its code; -1: of a size that no encoder makes. Also drops the code.
JAXDALI_INLINE int Magnitude(Bits* bits, CodeTable::Entry e) {
  bits->Drop(e.bits);
  const int size = e.value, v = static_cast<int>(Upper(bits->window, size));
  bits->Drop(static_cast<uint32_t>(size));
  return Extend(static_cast<uint32_t>(v), size);
}

JAXDALI_INLINE bool DecodeDcFirst(const CodeTable& table, int low, int32_t* dc, int16_t* block, Bits* bits) {
  bits->Refill();
  CodeTable::Entry e = table.At(bits->window);
  if (e.kind == CodeTable::kOther) {
    e = table.Find(bits->window);
    if (e.bits == 0) return false;
  }
  if (e.value > kMaxDcSize) return false;
  *dc += Magnitude(bits, e);
  const int32_t v = *dc * (1 << low);
  block[0] = static_cast<int16_t>(v);
  return v == block[0];
}

// Returns the number of following blocks without further coefficients; -1: damaged.
JAXDALI_INLINE int DecodeAcFirst(const StoredScan& s, const CodeTable& table, int16_t* block, uint64_t* present,
                                 Bits* state) {
  Bits bits = *state;
  uint64_t found = *present;
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
        run = (1 << e.run) - 1 + static_cast<int>(Upper(bits.window, e.run));
        bits.Drop(e.run);
        break;
      }
      if (e.value + low > 14 || e.value > kMaxAcSize) return -1;
      value = Magnitude(&bits, e);
    }
    k += e.run;
    if (__builtin_expect(k > last, 0)) return -1;
    block[kPairOrder.place[k]] = static_cast<int16_t>(value * (1 << low));
    found |= uint64_t{1} << (63 - k++);
  }
  if (k > last + 1) return -1;
  *present = found;
  *state = bits;
  return run;
}

// Reads one more bit of each coefficient from the first to the last, of which there are at most 32. Returns those whose
// bit is set.
template <class Isa>
JAXDALI_INLINE uint64_t FewCorrections(uint64_t which, Bits* bits) {
  const int n = __builtin_popcountll(which);
  const uint64_t found = Isa::Deposit(Upper(bits->window, n), which);
  bits->Drop(static_cast<uint32_t>(n));
  return found;
}
template <class Isa>
JAXDALI_INLINE uint64_t Corrections(uint64_t which, Bits* bits) {
  if (__builtin_expect(__builtin_popcountll(which) <= 32, 1)) return FewCorrections<Isa>(which, bits);
  const uint64_t upper = which >> 32 << 32, found = FewCorrections<Isa>(upper, bits);
  bits->Refill();
  return found | FewCorrections<Isa>(which ^ upper, bits);
}

// Like DecodeAcFirst. `run`: number of blocks without new coefficients, including this one.
template <class Isa>
JAXDALI_INLINE int DecodeAcRefine(const StoredScan& s, const CodeTable& table, int run, int16_t* block,
                                  uint64_t* present, Bits* state) {
  Bits bits = *state;
  const uint64_t band = ~uint64_t{0} >> s.first & ~uint64_t{0} << (63 - s.last), known = *present & band;
  uint64_t zeros = band ^ known, rest = band, corrected = 0, added = 0;  // rest: not processed yet
  while (run == 0 && rest) {
    bits.Refill();
    CodeTable::Entry e = table.At(bits.window);
    if (__builtin_expect(e.kind != CodeTable::kValue, 0)) {
      if (e.kind == CodeTable::kOther) {
        e = table.Find(bits.window);
        if (e.bits == 0) return -1;
      }
      bits.Drop(e.bits);
      if (e.kind == CodeTable::kRun) {
        run = (1 << e.run) + static_cast<int>(Upper(bits.window, e.run));
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
    // The coefficient after that many that stay zero.
    const int count = __builtin_popcountll(zeros) - 1 - e.run;
    if (__builtin_expect(count < 0, 0)) return -1;
    const uint64_t place = Isa::Deposit(uint64_t{1} << count, zeros), behind = place - 1;
    corrected |= Corrections<Isa>(known & rest & ~(behind << 1 | 1), &bits);
    block[kPairOrder.place[63 - __builtin_ctzll(place)]] = static_cast<int16_t>(e.value * (1 << s.low));
    added |= e.value ? place : 0;
    zeros &= behind;
    rest &= behind;
  }
  if (run > 0) {
    bits.Refill();
    corrected |= Corrections<Isa>(known & rest, &bits);
    run--;
  }
  for (; corrected; corrected &= corrected - 1) {
    int16_t* at = block + kPairOrder.place[63 - __builtin_ctzll(corrected)];
    const int v = *at, bit = 1 << s.low;
    if ((v & bit) == 0) *at = static_cast<int16_t>(v < 0 ? v - bit : v + bit);
  }
  *present |= added;
  *state = bits;
  return run;
}

// False: the data are damaged.
template <class Isa>
bool DecodeScan(StoredScan* scan) {
  StoredScan& s = *scan;
  Bits bits = s.bits;
  int until_restart = s.restart_interval, restarts = 0, run = 0;
  int32_t dc[4] = {};
  auto ends_at = [&](int marker) {
    return run == 0 && s.bytes->complete() && bits.position() == s.bytes->filled() && s.bytes->marker() == marker;
  };
  for (int y = 0; y < s.mcu_rows; y++) {
    for (int x = 0; x < s.mcu_columns; x++) {
      if (s.restart_interval > 0 && until_restart-- == 0) {
        if (!ends_at(0xD0 + (restarts++ & 7))) return false;
        bits = Bits::At(s.bytes->StartBehindMarker());
        for (int32_t& v : dc) v = 0;
        until_restart = s.restart_interval - 1;
      }
      if (bits.next > s.bytes->limit()) {
        if (s.bytes->complete()) return false;
        bits.next = s.bytes->Continue(bits.next);
      }
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
