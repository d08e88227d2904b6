// One row of MCUs: entropy decoding, directly followed by the inverse DCT. Compiled once for each kind of CPU, which
// `Isa` names.
//
// Two blocks are transformed at a time, because a 256-bit register holds a row of both. A group is two MCUs, so that
// the blocks of a pair always lie side by side in one component, for all sampling factors. The pairs of a group are
// transformed while the next group is decoded: loading as a whole what was just stored in pieces would stall.
#ifndef JAXDALI_FFI_JPEG_BAND_H_
#define JAXDALI_FFI_JPEG_BAND_H_

#include <cstdint>

#include "ffi/jpeg/block.h"
#include "ffi/jpeg/progressive.h"
#include "ffi/jpeg/scaled_idct.h"
#include "ffi/jpeg/scan_bytes.h"

namespace jaxdali::jpeg {

inline constexpr int kMaxBlocks = 10;  // of an MCU: T.81, B.2.3
// A block has at most 64 codes of 16 bits with magnitudes of 11 or 10 bits: 209 bytes. Once per group the decoder
// checks that enough bytes are there.
static_assert(ScanBytes::kAhead >= 2 * kMaxBlocks * 210 + 64 + 16);

// A block of a group, in the order of the scan.
struct GroupBlock {
  const DcTable* dc_table;
  const AcTable* ac_table;
  const SkipTable* skip_table;  // used in place of ac_table where blocks are skipped, once it is made
  uint32_t* dc;                 // DC prediction of its component
  int place;                    // index of its coefficients in those of the group
  int pair;                     // number of its pair in the group
  bool is_needed;               // whether the output depends on its component
};

// Two blocks of a group, side by side.
struct GroupPair {
  const int16_t* quantizer;  // for both blocks, in the order of the pair's coefficients
  uint8_t* samples;          // of the first group, in the current band
  int64_t pitch;             // bytes from row to row
  int width;                 // samples from group to group
  int size;                  // width and height of a block in samples; 0: it is not needed
};

// The start of an MCU and the state that its decoding depends on.
struct Checkpoint {
  int mcu;  // number of the MCU in the scan; for a multiple of the restart interval, the restart marker is not yet read
  const uint8_t* byte;  // in the file
  int bit;              // in that byte
  uint32_t dc[3];       // DC predictions
};

// The state of decoding the bands of a sequential file.
struct BandScan {
  ScanBytes bytes;
  Bits bits;
  uint32_t dc[3];                       // DC predictions
  int restart_interval, until_restart;  // in MCUs: between restart markers (INT_MAX: there are none), to the next one
  int restarts;                         // number of restart markers so far
  int mcu_blocks, mcu_columns;          // blocks of an MCU; MCUs of a band
  int first_group, end_group;           // groups that the region needs
  GroupBlock block[2 * kMaxBlocks];     // of the first MCU, then of the second one
  GroupPair pair[kMaxBlocks];
  // Of the group that is decoded and of the one before, which is transformed: they alternate. Zero between bands.
  alignas(64) int16_t coefficients[2][kMaxBlocks * kPairSize];

  // Begins a restart interval, whose data are at `from`: predictions are 0 (F.1.1.5.1).
  JAXDALI_INLINE void Restart(const uint8_t* from) {
    bits = Bits::At(from);
    dc[0] = dc[1] = dc[2] = 0;
    until_restart = restart_interval;
  }
  // Whether the data end at this marker, with no byte missing or left over.
  JAXDALI_INLINE bool EndsAt(int marker) const {
    return bytes.complete() && bits.position() == bytes.filled() && bytes.marker() == marker;
  }
};

// Decodes the n blocks of an MCU, or skips them (kSkip), to the group's `coefficients`. `lasts` gets the largest index
// of a coefficient in each pair. Returns a negative number if the data are damaged. This is a separate function so that
// the decoding loop gets the registers.
template <class Isa, bool kSkip>
__attribute__((noinline)) int DecodeMcu(const GroupBlock* blocks, int n, int16_t* coefficients, int* lasts,
                                        Bits* state) {
  Bits bits = *state;
  int damaged = 0;
  for (int k = 0; k < n; k++) {
    const GroupBlock& b = blocks[k];
    // Skipping a block still decodes its codes and its DC difference, but writes no coefficients.
    if (kSkip) {
      damaged |= b.skip_table->is_made()
                     ? DecodeBlock<Isa, /*kSkip=*/true>(*b.dc_table, *b.ac_table, *b.skip_table, b.dc, nullptr, &bits)
                     : DecodeBlock<Isa, /*kSkip=*/true>(*b.dc_table, *b.ac_table, *b.ac_table, b.dc, nullptr, &bits);
    } else if (b.is_needed) {
      const int block_last =
          DecodeBlock<Isa, /*kSkip=*/false>(*b.dc_table, *b.ac_table, *b.ac_table, b.dc, coefficients + b.place, &bits);
      damaged |= block_last;
      const int last = lasts[b.pair];
      lasts[b.pair] = block_last > last ? block_last : last;
    } else {
      // A block that the output does not need is skipped like an MCU of one block. This takes the address of a copy, so
      // that `bits` itself stays in registers.
      Bits skipped = bits;
      damaged |= DecodeMcu<Isa, /*kSkip=*/true>(&b, /*n=*/1, /*coefficients=*/nullptr, /*lasts=*/nullptr, &skipped);
      bits = skipped;
    }
  }
  *state = bits;
  return damaged;
}

// Transforms two blocks' coefficients to samples and clears them. `last`: the largest index of a coefficient. False:
// they are so large that libjpeg-turbo's result may differ. A pair of size 0 is not needed.
template <class Isa>
JAXDALI_INLINE bool TransformPair(const GroupPair& pair, int16_t* coefficients, int last, uint8_t* samples) {
  if (pair.size == 8) return Isa::Transform(coefficients, pair.quantizer, last, samples, pair.pitch);
  if (pair.size == 4) return Isa::ToSixteen(coefficients, pair.quantizer, samples, pair.pitch);
  if (pair.size == 2) return Isa::ToFour(coefficients, pair.quantizer, samples, pair.pitch);
  return pair.size != 1 || Isa::ToOne(coefficients, pair.quantizer, samples);
}

// Decodes a band, group by group. Returns false if the data are damaged or need libjpeg-turbo. Blocks are skipped if
// `is_needed` is false, and outside the groups that are needed.
template <class Isa>
bool DecodeBand(BandScan* scan, bool is_needed) {
  BandScan& s = *scan;
  const int groups = (s.mcu_columns + 1) / 2, blocks = s.mcu_blocks;
  int last[2][kMaxBlocks];  // largest index of a coefficient in each pair
  bool is_exact = true;     // results are those of libjpeg-turbo
  auto is_group_needed = [&](int group) { return is_needed && group >= s.first_group && group < s.end_group; };
  for (int group = 0; group <= groups; group++) {
    if (group < groups) {
      // Once per group: from limit() on there may be less data than two MCUs take, so more are copied.
      if (s.bits.next > s.bytes.limit()) {
        if (s.bytes.complete()) return false;
        s.bits.next = s.bytes.Continue(s.bits.next);
      }
      int* lasts = last[group & 1];
      for (int p = 0; p < blocks; p++) lasts[p] = 0;
      for (int mcu = 0; mcu < 2 && 2 * group + mcu < s.mcu_columns; mcu++) {
        // Restart markers RST0 to RST7 have the codes D0 to D7 in turn (B.1.1.3, E.2.4).
        if (s.until_restart == 0) {
          if (!s.EndsAt(0xD0 + (s.restarts++ & 7))) return false;
          s.Restart(s.bytes.StartBehindMarker());
        }
        s.until_restart--;
        const GroupBlock* first = s.block + mcu * blocks;
        const int damaged =
            is_group_needed(group)
                ? DecodeMcu<Isa, /*kSkip=*/false>(first, blocks, s.coefficients[group & 1], lasts, &s.bits)
                : DecodeMcu<Isa, /*kSkip=*/true>(first, blocks, nullptr, nullptr, &s.bits);
        if (damaged < 0) return false;
      }
    }
    // The group before this one, whose coefficients were stored in the last round.
    if (!is_group_needed(group - 1)) continue;
    for (int p = 0; p < blocks; p++) {
      const GroupPair& pair = s.pair[p];
      int16_t* const coefficients = s.coefficients[(group - 1) & 1] + p * kPairSize;
      uint8_t* const samples = pair.samples + int64_t{group - 1} * pair.width;
      is_exact &= TransformPair<Isa>(pair, coefficients, last[(group - 1) & 1][p], samples);
    }
  }
  return is_exact;
}

// The place of a pair's coefficients in a progressive file, for the first group of a band; and the number of pairs from
// there to the next group.
struct StoredGroupPair {
  int16_t* coefficients;
  const uint64_t* present;  // for both blocks
  int step;
};

// Transforms the groups of a band that the region needs, whose coefficients are already decoded. False: libjpeg-turbo
// must decode the image.
template <class Isa>
bool TransformBand(const BandScan& s, const StoredGroupPair* stored) {
  const int groups = (s.mcu_columns + 1) / 2, end = s.end_group < groups ? s.end_group : groups;
  bool is_exact = true;
  for (int group = s.first_group; group < end; group++) {
    for (int p = 0; p < s.mcu_blocks; p++) {
      const GroupPair& pair = s.pair[p];
      const StoredGroupPair& from = stored[p];
      const int64_t n = int64_t{group} * from.step;
      // Bit 63, for coefficient 0, is always set, so that the lowest bit gives the largest index of a coefficient.
      const uint64_t present = from.present[2 * n] | from.present[2 * n + 1] | uint64_t{1} << 63;
      is_exact &= TransformPair<Isa>(pair, from.coefficients + n * kStoredPair, 63 - __builtin_ctzll(present),
                                     pair.samples + int64_t{group} * pair.width);
    }
  }
  return is_exact;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BAND_H_
