// One row of MCUs: entropy decoding, and right behind it the inverse DCT. Compiled once for each kind of CPU.
//
// Blocks are transformed two at a time, as a 256-bit register has room for a row of both. So that all pairs lie side by
// side in one component, whatever its sampling factors, two MCUs make a group. The pairs of a group are transformed
// while the next group is decoded: what was just stored in pieces can't be loaded as a whole without waiting.
#ifndef JAXDALI_FFI_JPEG_BAND_H_
#define JAXDALI_FFI_JPEG_BAND_H_

#include <cstdint>

#include "ffi/jpeg/block.h"
#include "ffi/jpeg/progressive.h"
#include "ffi/jpeg/scaled_idct.h"
#include "ffi/jpeg/scan_bytes.h"

namespace jaxdali::jpeg {

inline constexpr int kMostBlocks = 10;  // of an MCU: T.81, B.2.3
// A block has at most 64 codes of 16 bits with magnitudes of 11 or 10: 209 bytes. It is checked once a group that they
// are there.
static_assert(ScanBytes::kAhead >= 2 * kMostBlocks * 210 + 64 + 16);

// A block of a group; they come in the order of the scan.
struct GroupBlock {
  const DcTable* dc_table;
  const AcTable* ac_table;
  const SkipTable* skip_table;  // instead of that one where blocks are skipped, once it is made
  uint32_t* dc;                 // prediction
  int place;                    // of its coefficients in the group's
  int pair;
  bool wanted;  // its component is
};

// Two blocks of a group, side by side.
struct GroupPair {
  const int16_t* quantizer;  // of both, in the order of the pair's coefficients
  uint8_t* samples;          // of the first group, in the present band
  int64_t pitch;             // bytes from row to row
  int width;                 // samples from group to group
  int size;                  // samples of a block, in each direction; 0: none is wanted
};

// Where an MCU begins, and what else its decoding depends on.
struct Checkpoint {
  int mcu;              // its number in the scan; a multiple of the restart interval: its restart marker is yet to come
  const uint8_t* byte;  // of the file
  int bit;              // of that byte
  uint32_t dc[3];       // predictions
};

struct BandScan {
  ScanBytes bytes;
  Bits bits;
  uint32_t dc[3];  // predictions
  int restart_interval, until_restart, restarts;
  int mcu_blocks, mcu_columns;
  int first_group, end_group;  // that the region needs
  GroupBlock block[2 * kMostBlocks];
  GroupPair pair[kMostBlocks];
  alignas(64) int16_t coefficients[2][kMostBlocks * kPairSize];  // zero, between bands

  JAXDALI_INLINE void Restart(const uint8_t* at) {
    bits = Bits::At(at);
    dc[0] = dc[1] = dc[2] = 0;
    until_restart = restart_interval;
  }
  // The data have to end where a marker stands: no byte is missing or left over.
  JAXDALI_INLINE bool EndsAt(int marker) const {
    return bytes.complete() && bits.position() == bytes.filled() && bytes.marker() == marker;
  }
};

// An MCU's blocks, of which `lasts` gets the largest index of a coefficient in each pair. Negative: damaged. A function
// of its own, so that decoding has the registers.
template <class Isa, bool kSkip>
__attribute__((noinline)) int DecodeMcu(const GroupBlock* blocks, int n, int16_t* coefficients, int* lasts,
                                        Bits* state) {
  Bits bits = *state;
  int damaged = 0;
  for (int k = 0; k < n; k++) {
    const GroupBlock& b = blocks[k];
    if (kSkip) {
      damaged |= b.skip_table->made()
                     ? DecodeBlock<Isa, true>(*b.dc_table, *b.ac_table, *b.skip_table, b.dc, nullptr, &bits)
                     : DecodeBlock<Isa, true>(*b.dc_table, *b.ac_table, *b.ac_table, b.dc, nullptr, &bits);
    } else if (b.wanted) {
      const int got =
          DecodeBlock<Isa, false>(*b.dc_table, *b.ac_table, *b.ac_table, b.dc, coefficients + b.place, &bits);
      damaged |= got;
      const int last = lasts[b.pair];
      lasts[b.pair] = got > last ? got : last;
    } else {
      Bits skipped = bits;
      damaged |= DecodeMcu<Isa, true>(&b, 1, nullptr, nullptr, &skipped);
      bits = skipped;
    }
  }
  *state = bits;
  return damaged;
}

// Two blocks' coefficients, zero afterwards, to samples. `last`: the largest index of one.
template <class Isa>
JAXDALI_INLINE bool TransformPair(const GroupPair& pair, int16_t* coefficients, int last, uint8_t* samples) {
  if (pair.size == 8) return Isa::Transform(coefficients, pair.quantizer, last, samples, pair.pitch);
  if (pair.size == 4) return Isa::ToSixteen(coefficients, pair.quantizer, samples, pair.pitch);
  if (pair.size == 2) return Isa::ToFour(coefficients, pair.quantizer, samples, pair.pitch);
  return pair.size != 1 || Isa::ToOne(coefficients, pair.quantizer, samples);
}

// False: damaged, or to be left to libjpeg-turbo. With `wanted` false, or outside the groups that are needed, blocks
// are skipped over.
template <class Isa>
bool DecodeBand(BandScan* scan, bool wanted) {
  BandScan& s = *scan;
  const int groups = (s.mcu_columns + 1) / 2, blocks = s.mcu_blocks;
  int last[2][kMostBlocks];  // largest index of a coefficient in each pair
  bool sane = true;
  auto is_wanted = [&](int group) { return wanted && group >= s.first_group && group < s.end_group; };
  for (int group = 0; group <= groups; group++) {
    if (group < groups) {
      if (s.bits.next > s.bytes.limit()) {
        if (s.bytes.complete()) return false;
        s.bits.next = s.bytes.Continue(s.bits.next);
      }
      int* lasts = last[group & 1];
      for (int p = 0; p < blocks; p++) lasts[p] = 0;
      for (int mcu = 0; mcu < 2 && 2 * group + mcu < s.mcu_columns; mcu++) {
        if (s.until_restart == 0) {
          if (!s.EndsAt(0xD0 + (s.restarts++ & 7))) return false;
          s.Restart(s.bytes.StartBehindMarker());
        }
        s.until_restart--;
        const GroupBlock* first = s.block + mcu * blocks;
        const int damaged = is_wanted(group)
                                ? DecodeMcu<Isa, false>(first, blocks, s.coefficients[group & 1], lasts, &s.bits)
                                : DecodeMcu<Isa, true>(first, blocks, nullptr, nullptr, &s.bits);
        if (damaged < 0) return false;
      }
    }
    if (!is_wanted(group - 1)) continue;
    for (int p = 0; p < blocks; p++) {
      const GroupPair& pair = s.pair[p];
      int16_t* const coefficients = s.coefficients[(group - 1) & 1] + p * kPairSize;
      uint8_t* const samples = pair.samples + int64_t{group - 1} * pair.width;
      sane &= TransformPair<Isa>(pair, coefficients, last[(group - 1) & 1][p], samples);
    }
  }
  return sane;
}

// Where a progressive file's coefficients are of a pair in the first group of a band, and how many pairs come before
// the next group's.
struct StoredGroupPair {
  int16_t* coefficients;
  const uint64_t* present;  // of both blocks
  int step;
};

// The groups of a band that the region needs, of coefficients that are there.
template <class Isa>
bool TransformBand(const BandScan& s, const StoredGroupPair* stored) {
  const int groups = (s.mcu_columns + 1) / 2, end = s.end_group < groups ? s.end_group : groups;
  bool sane = true;
  for (int group = s.first_group; group < end; group++) {
    for (int p = 0; p < s.mcu_blocks; p++) {
      const GroupPair& pair = s.pair[p];
      const StoredGroupPair& from = stored[p];
      const int64_t n = int64_t{group} * from.step;
      const uint64_t present = from.present[2 * n] | from.present[2 * n + 1] | uint64_t{1} << 63;
      sane &= TransformPair<Isa>(pair, from.coefficients + n * kStoredPair, 63 - __builtin_ctzll(present),
                                 pair.samples + int64_t{group} * pair.width);
    }
  }
  return sane;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BAND_H_
