// One row of MCUs: entropy decoding, and right behind it the inverse DCT. Compiled once for each kind of CPU.
//
// Blocks are transformed two at a time, as a 256-bit register has room for a row of both. So that all pairs lie side by
// side in one component, whatever its sampling factors, two MCUs make a group. The pairs of a group are transformed
// while the next group is decoded: what was just stored in pieces can't be loaded as a whole without waiting.
#ifndef JAXDALI_FFI_JPEG_BAND_H_
#define JAXDALI_FFI_JPEG_BAND_H_

#include <cstdint>

#include "ffi/jpeg/block.h"
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
  uint32_t* dc;  // prediction
  int place;     // of its coefficients in the group's
  int pair;
  bool wanted;  // its component is
};

// Two blocks of a group, side by side.
struct GroupPair {
  const int16_t* quantizer;  // of both, in the order of the pair's coefficients
  uint8_t* samples;          // of the first group, in the present band
  int64_t pitch;             // bytes from row to row
  int width;                 // samples from group to group
  bool wanted;
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

// Apart, so that decoding has the registers.
template <class Isa>
__attribute__((noinline)) Bits SkipBlock(const GroupBlock& b, Bits bits, int* damaged) {
  *damaged |= DecodeBlock<Isa, true>(*b.dc_table, *b.ac_table, b.dc, nullptr, &bits);
  return bits;
}

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
      damaged |= DecodeBlock<Isa, true>(*b.dc_table, *b.ac_table, b.dc, nullptr, &bits);
    } else if (b.wanted) {
      const int got = DecodeBlock<Isa, false>(*b.dc_table, *b.ac_table, b.dc, coefficients + b.place, &bits);
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
      if (pair.wanted)
        sane &= Isa::Transform(s.coefficients[(group - 1) & 1] + p * kPairSize, pair.quantizer,
                               last[(group - 1) & 1][p], pair.samples + int64_t{group - 1} * pair.width, pair.pitch);
    }
  }
  return sane;
}

// A block of an MCU, of which a sample is made, or two by two, at an eighth of the image's size.
struct EighthBlock {
  const int16_t* quantizer;  // in the order of a pair's coefficients
  uint8_t* samples;          // of the first MCU
  int64_t pitch;
  int step;  // samples from MCU to MCU
  int size;  // 0: none is wanted
};

// 0 to 255 of what is a sample less 128. False: so large that libjpeg-turbo's table goes round.
JAXDALI_INLINE bool ToSample(int32_t v, uint8_t* sample) {
  *sample = static_cast<uint8_t>(v < -128 ? 0 : v > 127 ? 255 : v + 128);
  return v >= -512 && v < 512;
}

// A block's mean, as libjpeg-turbo's jpeg_idct_1x1 has it.
JAXDALI_INLINE bool ToOne(int32_t dc, int32_t quantizer, uint8_t* sample) {
  return dc >= -32768 && dc < 32768 && ToSample((dc * quantizer + 4) >> 3, sample);
}

// As libjpeg-turbo's jpeg_idct_2x2: of columns and rows 0 and the odd ones. Leaves the coefficients zero. False: so
// large that sums could leave 32 bits, or 16 in its SIMD code.
JAXDALI_INLINE bool ToFour(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
  auto pass = [](int32_t v0, int32_t v1, int32_t v3, int32_t v5, int32_t v7, int shift, int32_t* out, int to) {
    const int32_t even = v0 * 32768, odd = v1 * 29692 - v3 * 10426 + v5 * 6967 - v7 * 5906, half = 1 << (shift - 1);
    out[0] = (even + odd + half) >> shift;
    out[to] = (even - odd + half) >> shift;
  };
  int32_t rows[2][8] = {}, out[2];
  bool sane = true;
  auto check = [&](int32_t v, int32_t most) { return sane &= v >= -most && v < most; };
  for (int x = 0; x < 8; x += x == 0 ? 1 : 2) {
    int32_t v[8];
    for (int y = 0; y < 8; y += y == 0 ? 1 : 2) {
      v[y] = c[16 * y + x] * static_cast<uint16_t>(quantizer[16 * y + x]);
      check(v[y], 8192);
    }
    if (sane) pass(v[0], v[1], v[3], v[5], v[7], 13, &rows[0][x], 8);
  }
  for (int y = 0; y < 8; y++) std::memset(c + 16 * y, 0, 16);
  for (int y = 0; y < 2; y++) {
    const int32_t* const r = rows[y];
    for (int x = 0; x < 8; x++) check(r[x], 16384);
    if (!sane) return false;
    pass(r[0], r[1], r[3], r[5], r[7], 20, out, 1);
    for (int x = 0; x < 2; x++) sane &= ToSample(out[x], samples + y * pitch + x);
  }
  return sane;
}

// A row of MCUs at an eighth of its size: of most blocks nothing but the first coefficient is looked at. As DecodeBand.
template <class Isa>
bool DecodeEighths(BandScan* scan, const EighthBlock* blocks) {
  BandScan& s = *scan;
  alignas(64) int16_t coefficients[kPairSize] = {};
  bool sane = true;
  for (int mcu = 0; mcu < s.mcu_columns; mcu++) {
    if (s.bits.next > s.bytes.limit()) {
      if (s.bytes.complete()) return false;
      s.bits.next = s.bytes.Continue(s.bits.next);
    }
    if (s.until_restart == 0) {
      if (!s.EndsAt(0xD0 + (s.restarts++ & 7))) return false;
      s.Restart(s.bytes.StartBehindMarker());
    }
    s.until_restart--;
    int damaged = 0;
    for (int k = 0; k < s.mcu_blocks; k++) {
      const GroupBlock& b = s.block[k];
      const EighthBlock& e = blocks[k];
      uint8_t* const to = e.samples + int64_t{mcu} * e.step;
      if (e.size == 2) {
        const GroupBlock alone{b.dc_table, b.ac_table, b.dc, 0, 0, true};
        int last = 0;
        damaged |= DecodeMcu<Isa, false>(&alone, 1, coefficients, &last, &s.bits);
        sane &= ToFour(coefficients, e.quantizer, to, e.pitch);
      } else {
        damaged |= DecodeMcu<Isa, true>(&b, 1, nullptr, nullptr, &s.bits);
        if (e.size == 1) sane &= ToOne(static_cast<int32_t>(*b.dc), static_cast<uint16_t>(e.quantizer[0]), to);
      }
    }
    if (damaged < 0) return false;
  }
  return sane;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BAND_H_
