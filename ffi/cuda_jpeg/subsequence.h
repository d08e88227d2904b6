// Decodes the symbols of one subsequence of entropy-coded data from any state; see entropy.h. Read DecodePart first,
// near the end: it goes over segments, takes most symbols by Skip (only the state counts) or Write (final decoding),
// which don't check for the end of the data, and the last ones of a segment one by one.
#ifndef JAXDALI_FFI_CUDA_JPEG_SUBSEQUENCE_H_
#define JAXDALI_FFI_CUDA_JPEG_SUBSEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ffi/common/block.h"
#include "ffi/common/words.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/words.h"

namespace jaxdali::jpeg {

// A scan and its tables for the threads of a block, in shared memory, where divergent reads are fast.
struct ScanView {
  Lookup lookup[kMaxTables];  // of the image
  // For each block of the period: its tables, as numbers of words from `lookup` on (DC: bits 0-12, AC: bits 13-25), and
  // the number of the next block.
  uint32_t tables[kMaxMcuBlocks];
  ScanTable scan;
  const uint32_t* words;            // the data without stuffing and markers
  const uint32_t* segment_end;      // the bit at which each segment ends
  uint32_t bits, subsequence_bits;  // of all data, and of a subsequence

  // Packs `tables` for a block of the period.
  JAXDALI_HD void SetTables(int block_number) {
    const McuBlock& b = scan.block[block_number];
    constexpr uint32_t kWords = sizeof(Lookup) / 4;
    static_assert(kMaxTables * kWords < 1 << 13);
    tables[block_number] = b.dc * kWords | b.ac * kWords << 13 |
                           static_cast<uint32_t>(block_number + 1 < scan.period ? block_number + 1 : 0) << 26;
  }
  JAXDALI_HD static uint32_t DcOf(uint32_t tables_of_block) { return tables_of_block & 0x1FFF; }
  JAXDALI_HD static uint32_t AcOf(uint32_t tables_of_block) { return tables_of_block >> 13 & 0x1FFF; }
  JAXDALI_HD static uint32_t NextOf(uint32_t tables_of_block) { return tables_of_block >> 26; }
  // The table that begins so many words after `lookup`.
  JAXDALI_HD const Lookup& LookupAt(uint32_t table) const {
    return *reinterpret_cast<const Lookup*>(reinterpret_cast<const uint8_t*>(lookup) + table * 4);
  }
  // A Meaning as a word: that of the first bits of `window`, in the table that begins `table` words after `lookup`.
  JAXDALI_HD uint32_t MeaningAt(uint32_t table, uint32_t window) const {
    static_assert(offsetof(Lookup, meaning) == 0);
    const auto* entry = reinterpret_cast<const uint8_t*>(lookup) + (table + (window >> (32 - kLookupBits))) * 4;
    uint32_t word;
    std::memcpy(&word, __builtin_assume_aligned(entry, 4), 4);
    return word;
  }

  JAXDALI_HD int32_t subsequences() const {
    return static_cast<int32_t>((bits + subsequence_bits - 1) / subsequence_bits);
  }
};

// The state at the start of a subsequence: how far the last symbol of the subsequence before reaches into it (0 to 30),
// the zigzag index of the next coefficient (0 to 63), and the block's index within the period of the MCU's tables (0 to
// 9).
JAXDALI_HD inline uint16_t PackState(uint32_t overhang, int index, int block) {
  return static_cast<uint16_t>(overhang | static_cast<uint32_t>(index) << 5 | static_cast<uint32_t>(block) << 11);
}
// The parts of such a state.
JAXDALI_HD inline uint32_t OverhangOf(uint16_t state) { return state & 31; }
JAXDALI_HD inline int IndexOf(uint16_t state) { return state >> 5 & 63; }
JAXDALI_HD inline int PeriodBlockOf(uint16_t state) { return state >> 11; }

// Reads two words of the data at a time. Words past the end are zeros.
class BitReader {
 public:
  JAXDALI_HD BitReader(const uint32_t* words, uint32_t bits)
      : words_(words),
        count_((bits + 31) >> 5),
        tail_bits_(bits & 31),
        word_index_(0xFFFFFFF0u),
        first_(0),
        second_(0) {}

  // The 32 bits from number `bit` on.
  JAXDALI_HD uint32_t Peek(uint32_t bit) {
    const uint32_t i = bit >> 5;
    if (i != word_index_) {
      first_ = i == word_index_ + 1 ? second_ : Load(i);
      second_ = Load(i + 1);
      word_index_ = i;
    }
    return FunnelLeft(first_, second_, bit & 31);
  }

 private:
  // Word i of the data, the first bit uppermost; 0 past the end.
  JAXDALI_HD uint32_t Load(uint32_t i) const {
    if (i >= count_) return 0;
    const uint32_t word = BigEndian(ReadWord(reinterpret_cast<const uint8_t*>(words_ + i)));
    // Bits beyond the tail were never written.
    return i == count_ - 1 && tail_bits_ ? word & ~(0xFFFFFFFFu >> tail_bits_) : word;
  }

  const uint32_t* words_;
  uint32_t count_, tail_bits_;            // words, and bits in the last one (0: all)
  uint32_t word_index_, first_, second_;  // the number of the first of two words that are loaded, and these words
};

// The same without checks, for places that kBitsAhead bits follow. It reads a word before a look-up needs it, so no
// look-up waits: at the end a word after the data, which lies in the working memory and is not used.
inline constexpr uint32_t kBitsAhead = 96;
class BitStream {
 public:
  JAXDALI_HD BitStream(const uint32_t* words, uint32_t bit)
      : words_(reinterpret_cast<const uint8_t*>(words)),
        end_((bit | 31) + 1),
        first_(BigEndian(Read(-4))),
        second_(BigEndian(Read(0))),
        third_(Read(4)) {}

  // The 32 bits from number `bit` on. `bit` ascends by at most 31.
  JAXDALI_HD uint32_t Peek(uint32_t bit) {
    Advance(bit);
    return Window(bit);
  }

  // The two parts of Peek: the second one needs the first one only where `bit` has reached end().
  JAXDALI_HD void Advance(uint32_t bit) {
    if (bit < end_) return;
    end_ += 32;
    first_ = second_;
    second_ = BigEndian(third_);
    third_ = Read(4);
  }
  JAXDALI_HD uint32_t Window(uint32_t bit) const { return FunnelLeft(first_, second_, bit & 31); }
  JAXDALI_HD uint32_t end(uint32_t limit) const { return end_ < limit ? end_ : limit; }

 private:
  // The word so many bytes after the end of the first one.
  JAXDALI_HD uint32_t Read(int bytes) const { return ReadWord(words_ + (end_ >> 3) + bytes); }

  // Three words of the data; the third one is not converted to this machine's order yet. `end_` is the bit after the
  // first.
  const uint8_t* words_;
  uint32_t end_, first_, second_, third_;
};

// The first segment that ends after `bit`; `n`: none.
JAXDALI_HD inline int32_t FindSegment(const uint32_t* segment_end, int32_t n, uint32_t bit) {
  int32_t low = 0, high = n;
  while (low < high) {
    const int32_t middle = (low + high) >> 1;
    if (segment_end[middle] > bit)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// In Decoding::blocks: a segment begins in the subsequence, and only blocks after the last such beginning are counted.
inline constexpr uint32_t kSinceSegment = 1u << 31;

// Adds the counts of two neighbouring ranges, of which `b` is the later one. If a segment begins in it (kSinceSegment),
// the blocks of the earlier one don't count.
struct AddCounts {
  JAXDALI_HD uint32_t operator()(uint32_t a, uint32_t b) const {
    return b & kSinceSegment ? b : ((a & ~kSinceSegment) + b) | (a & kSinceSegment);
  }
};

// An output that drops decoded values, where only the state counts.
struct NoOutput {
  static constexpr bool kWrites = false, kAlone = false;
};
// The same for a thread that has few others in its warp, or none.
struct NoOutputAlone {
  static constexpr bool kWrites = false, kAlone = true;
};

// The blocks at one position of all MCUs: their places among the coefficients of the component. DecodeWrite has these
// in shared memory.
struct alignas(16) BlockPlace {
  uint32_t coefficients;     // offset of the component's, in units of kPlaceUnit bytes
  int32_t columns, rows;     // blocks that the region needs
  int32_t step_x, step_y;    // blocks of the component in an MCU
  int32_t first_x, first_y;  // the first MCU's block, counted from the region's first
  int32_t unused;

  // A scan of one component has a single block in each MCU, whatever the sampling factors (A.2.2).
  JAXDALI_HD static BlockPlace Of(const ScanTable& scan, const Component& c, const McuBlock& b) {
    const bool is_single = scan.components == 1;
    return {c.coefficients,      c.columns(), c.y1 - c.y0, is_single ? 1 : c.h,
            is_single ? 1 : c.v, b.dx - c.x0, b.dy - c.y0, 0};
  }
};

// An output that writes to the arrays of coefficients and DC values. The coefficients are zero before.
struct Output {
  static constexpr bool kWrites = true;
  const ScanTable* scan;
  const BlockPlace* places;  // of the scan
  uint8_t* workspace;
  uint32_t block, limit;  // the block's number within the segment, and how many of its blocks the region needs
  bool has_error;

  // The current block: its MCU, its number there, and the place of its DC value.
  int32_t mcu_x, mcu_y, mcu_block;
  int16_t* dc;
  uint32_t coefficients;  // place in the working memory; 0: the region does not need the block

  // Goes to block number `block` of a segment. If the region does not need this block, nor any after it, only `limit`
  // is set.
  JAXDALI_HD void EnterSegment(int32_t segment) {
    const int32_t first = segment * scan->restart_interval, mcus_left = scan->needed_mcus - first;
    const int32_t mcus = mcus_left < scan->restart_interval ? mcus_left : scan->restart_interval;
    limit = mcus > 0 ? static_cast<uint32_t>(mcus * scan->mcu_blocks) : 0;
    if (block >= limit) return;
    const int32_t mcu = first + static_cast<int32_t>(block) / scan->mcu_blocks;
    mcu_block = static_cast<int32_t>(block) % scan->mcu_blocks;
    mcu_x = mcu % scan->mcu_columns;
    mcu_y = mcu / scan->mcu_columns;
    dc = reinterpret_cast<int16_t*>(workspace + scan->dc * kPlaceUnit) + int64_t{first} * scan->mcu_blocks + block;
    Locate();
  }

  // Goes to the next block of the segment.
  JAXDALI_HD void NextBlock() {
    block++;  // past the last one what follows is not used
    dc++;
    if (++mcu_block == scan->mcu_blocks) {
      mcu_block = 0;
      if (++mcu_x == scan->mcu_columns) mcu_x = 0, mcu_y++;
    }
    Locate();
  }

  // Writes the coefficient with this zigzag index. Zeros are there already.
  JAXDALI_HD void Write(int index, int16_t value) const {
    if (value && coefficients) At(coefficients)[index] = value;
  }
  JAXDALI_HD int16_t* At(uint32_t place) const {
    return reinterpret_cast<int16_t*>(workspace + static_cast<int64_t>(place) * kPlaceUnit);
  }

 private:
  // Finds the place of the current block's coefficients.
  JAXDALI_HD void Locate() {
    const BlockPlace& p = places[mcu_block];
    const int32_t x = mcu_x * p.step_x + p.first_x, y = mcu_y * p.step_y + p.first_y;
    static_assert(64 * sizeof(int16_t) == 2 * kPlaceUnit);
    const uint32_t place = p.coefficients + 2 * static_cast<uint32_t>(y * p.columns + x);
    const bool is_needed = static_cast<uint32_t>(x) < static_cast<uint32_t>(p.columns) &&
                           static_cast<uint32_t>(y) < static_cast<uint32_t>(p.rows);
    coefficients = is_needed ? place : 0;
  }
};

// A position in the data, and the state of decoding there.
struct Position {
  uint32_t bit;
  int index, period_block;  // coefficient in the block, block in the period
};

// Symbols that begin before this bit end before the segment does, and kBitsAhead bits follow the beginning. `bits`: of
// all data. `end`: where the thread stops at the latest.
JAXDALI_HD inline uint32_t UncheckedEnd(uint32_t segment_end, uint32_t bits, uint32_t end) {
  auto subtract = [](uint32_t bit, uint32_t n) { return bit > n ? bit - n : 0; };
  const uint32_t a = subtract(segment_end, kMaxSymbolBits), b = subtract(bits, kBitsAhead - 1), c = a < b ? a : b;
  return c < end ? c : end;
}

// Decodes symbols that begin before `end`, which is an UncheckedEnd. Only the state counts, so a look-up gives all
// symbols of a group. Adds the number of blocks that end to `count`. Returns the number of look-ups.
//
// Threads of a warp are at different places of their blocks. So there are few branches, and a few instructions in each.
// kAlone: the thread has few others in its warp, or none. Then the time is that of instructions one after the other,
// and each branch that is not taken saves some.
template <bool kAlone>
JAXDALI_HD inline int32_t Skip(const ScanView& v, uint32_t end, Position* position, uint32_t* count) {
  int32_t lookups = 0;
  uint32_t bit = position->bit, period_block = static_cast<uint32_t>(position->period_block), blocks = 0;
  // Twice the index of the next coefficient. The lowest bit is kEndsBlock: both come from a group's upper byte.
  uint32_t doubled_index = static_cast<uint32_t>(position->index) * 2;
  uint32_t tables = v.tables[period_block], ac = v.AcOf(tables), table = doubled_index ? ac : v.DcOf(tables);
  BitStream stream(v.words, bit);
  // The codes of a group, though not the magnitude of the last one, lie within kLookupBits bits.
  const uint32_t groups_end = end > kLookupBits - 1 ? end - (kLookupBits - 1) : 0;
  // Takes one symbol, whose `meaning` comes from `table`: for long codes, for groups that don't fit into the block, and
  // at the end.
  auto read_symbol = [&](uint32_t meaning, uint32_t table, uint32_t window) {
    uint32_t symbol = SymbolOf(meaning);
    if (symbol == 0) symbol = v.LookupAt(table).ReadLong(window >> 16);
    if (symbol == 0) symbol = kNoCode;
    bit += LengthOf(symbol);
    doubled_index += AdvanceOf(symbol) * 2;
    // If there is no such code, or coefficients go past the last one, the guess was wrong. The next guess is that an
    // MCU begins here, which synchronises soonest: the number of the next block, in bits 26 and up, becomes 0.
    if (doubled_index > 2 * 64 && doubled_index < 2 * kEndOfBlock) tables &= (1 << 26) - 1;
    if (doubled_index > 2 * 64) doubled_index = 2 * 64;
  };
  // Goes to the next block of the period: its tables, the first of which is the one for DC.
  auto end_block = [&] {
    doubled_index = 0;
    period_block = v.NextOf(tables);
    tables = v.tables[period_block];
    table = v.DcOf(tables);
    ac = v.AcOf(tables);
    blocks++;
  };
  // A group's index is odd if the last symbol ends the block, and more than 2 * 64 if they are not all in this block.
  if constexpr (kAlone) {
    // Most look-ups end neither the block nor the word of the data, and only one branch is for what is rare.
    for (uint32_t word_end = stream.end(groups_end); bit < groups_end;) {
      const uint32_t window = stream.Window(bit), meaning = v.MeaningAt(table, window), previous_table = table;
      const uint32_t length = GroupLengthOf(meaning);
      lookups++;
      bit += length;
      doubled_index += DoubledAdvanceOf(meaning);
      table = ac;
      // Even and at most 2 * 63: the block goes on.
      if ((doubled_index & ~126u) == 0 && bit < word_end) continue;
      if (doubled_index > 2 * 64) {  // takes the group back, and its first symbol instead
        bit -= length;
        doubled_index -= DoubledAdvanceOf(meaning);
        read_symbol(meaning, previous_table, window);
      }
      if (doubled_index & (2 * 64 | 1)) end_block();
      stream.Advance(bit);
      word_end = stream.end(groups_end);
    }
  } else {
    for (; bit < groups_end; lookups++) {
      stream.Advance(bit);
      const uint32_t window = stream.Window(bit), meaning = v.MeaningAt(table, window), previous_table = table;
      const uint32_t next = doubled_index + DoubledAdvanceOf(meaning);
      table = ac;
      if (next > 2 * 64) {
        read_symbol(meaning, previous_table, window);
      } else {
        bit += GroupLengthOf(meaning);
        doubled_index = next;
      }
      if (doubled_index & (2 * 64 | 1)) end_block();
    }
  }
  // The last few bits, where a group's codes may not fit: symbol by symbol.
  for (; bit < end; lookups++) {
    stream.Advance(bit);
    const uint32_t window = stream.Window(bit), previous_table = table;
    table = ac;
    read_symbol(v.MeaningAt(previous_table, window), previous_table, window);
    if (doubled_index == 2 * 64) end_block();
  }
  *position = {bit, static_cast<int>(doubled_index / 2), static_cast<int>(period_block)};
  *count += blocks;
  return lookups;
}

// Decodes symbols that begin before `end`, which is an UncheckedEnd, and writes them, four coefficients at a time. It
// stops before an error in the data, and where the region needs no more blocks.
JAXDALI_HD inline void Write(const ScanView& v, uint32_t end, Position* position, Output* out) {
  uint32_t bit = position->bit, period_block = static_cast<uint32_t>(position->period_block);
  uint32_t index = static_cast<uint32_t>(position->index);
  uint32_t tables = v.tables[period_block];
  // Coefficients are written in groups of four. These are the values of the current group, the place of its block (0:
  // none is to be written), and its number, which ascends over blocks.
  uint64_t values = 0;
  uint32_t block = 0, group = ~0u, groups_before = 0;
  // The thread before has decoded some of this group, so only nonzero values may be written.
  const uint32_t shared_group = index % 4 ? index / 4 : ~0u;
  // Writes the current group; if it is shared, only its nonzero values.
  auto write = [&](bool is_shared) {
    if (block == 0) return;
    int16_t* coefficients = out->At(block) + group % 16 * 4;
    if (!is_shared)
      Store2(coefficients, {static_cast<uint32_t>(values), static_cast<uint32_t>(values >> 32)});
    else
      for (int i = 0; i < 4; i++)
        if (const auto value = static_cast<int16_t>(values >> 16 * i)) coefficients[i] = value;
  };
  BitStream stream(v.words, bit);
  while (bit < end && out->block < out->limit) {
    const uint32_t window = stream.Peek(bit);
    const uint32_t symbol = v.LookupAt(index ? v.AcOf(tables) : v.DcOf(tables)).Read(window);
    const int length = static_cast<int>(LengthOf(symbol)), size = static_cast<int>(MagnitudeLengthOf(symbol));
    const uint32_t advance = AdvanceOf(symbol), next = index + advance;
    if (symbol == 0 || (next > 64 && advance != kEndOfBlock)) break;
    const uint32_t magnitude = window << (length - size);  // uppermost in the word, before other bits
    // A magnitude without its highest bit stands for a negative value. Without any bits the value is 0.
    const uint32_t below = magnitude >> 31 ? 0 : (~0u << size) + 1;
    const auto value = static_cast<uint16_t>((magnitude >> 1 >> (31 - size)) + below);
    if (index == 0) {
      *out->dc = static_cast<int16_t>(value);
    } else if (size) {
      const uint32_t place = next - 1, group_of_value = groups_before + place / 4;
      if (group_of_value != group) {
        write(group == shared_group);
        values = 0;
        group = group_of_value;
        block = out->coefficients;
      }
      values |= static_cast<uint64_t>(value) << (place % 4 * 16);
    }
    bit += static_cast<uint32_t>(length);
    index = next;
    if (next >= 64) {
      index = 0;
      groups_before += 16;
      period_block = v.NextOf(tables);
      tables = v.tables[period_block];
      out->NextBlock();
    }
  }
  // The next thread may decode the rest of this group.
  write(/*is_shared=*/true);
  *position = {bit, static_cast<int>(index), static_cast<int>(period_block)};
}

// The result of decoding a part of a subsequence: the state after it, and the blocks that end in it.
struct PartEnd {
  uint16_t exit;
  uint32_t blocks;
};

// Decodes the symbols that begin in a part of a subsequence, number `number` of the scan's parts, from the state
// `entry` (see PackState). Adds the number of look-ups to `lookups`. `out`: an Output, whose `block` is set; otherwise
// unused.
template <class Out>
JAXDALI_HD PartEnd DecodePart(const ScanView& v, int32_t number, uint16_t entry, Out* out, int32_t* lookups) {
  const ScanTable& scan = v.scan;
  const uint32_t bits = v.subsequence_bits / kWriteParts;
  const uint32_t start = static_cast<uint32_t>(number) * bits, part_end = start + bits;
  const uint32_t end = part_end < v.bits ? part_end : v.bits;
  Position p{start + OverhangOf(entry), IndexOf(entry), PeriodBlockOf(entry)};
  uint32_t count = 0, since_segment = 0;  // blocks that ended, and kSinceSegment once a segment has begun
  // Whatever the state is, no block beyond the period is read.
  if (p.period_block >= scan.period) p.period_block = 0;
  auto exit = [&] { return PackState(p.bit > part_end ? p.bit - part_end : 0, p.index, p.period_block); };
  // Without a search at the beginning: the first segment may be empty.
  int32_t segment = scan.segments == 1 || number == 0 ? 0 : FindSegment(v.segment_end, scan.segments, p.bit);
  if (segment >= scan.segments || p.bit >= end) return {exit(), 0};
  uint32_t segment_end = v.segment_end[segment];
  if constexpr (Out::kWrites) out->EnterSegment(segment);
  while (p.bit < end) {
    const uint32_t unchecked_end = UncheckedEnd(segment_end, v.bits, end);
    if constexpr (Out::kWrites) {
      if (p.bit < unchecked_end) Write(v, unchecked_end, &p, out);
    } else if (p.bit < unchecked_end) {
      *lookups += Skip<Out::kAlone>(v, unchecked_end, &p, &count);
    }
    // The end of the segment, symbol by symbol, with all checks.
    BitReader reader(v.words, v.bits);
    for (bool stays_in_segment = true; stays_in_segment && p.bit < end; ++*lookups) {
      bool is_idle = false;  // the region needs no more blocks of the segment
      if constexpr (Out::kWrites) is_idle = out->block >= out->limit;
      const uint32_t window = is_idle ? 0 : reader.Peek(p.bit);
      const McuBlock& mcu_block = scan.block[p.period_block];
      const Lookup& lookup = v.lookup[p.index ? mcu_block.ac : mcu_block.dc];
      if (is_idle) {
        p.bit = segment_end;  // padding, or data that no block needs
      } else {
        const uint32_t symbol = lookup.Read(window);
        const uint32_t length = symbol ? LengthOf(symbol) : LengthOf(kNoCode);
        const int advance = static_cast<int>(symbol ? AdvanceOf(symbol) : AdvanceOf(kNoCode));
        if (p.bit + length > segment_end) {
          p.bit = segment_end;  // a symbol never straddles segments: this is padding
        } else {
          if constexpr (Out::kWrites) {
            const int size = static_cast<int>(MagnitudeLengthOf(symbol)), place = p.index + advance - 1;
            const uint32_t magnitude = size ? (window << (length - size)) >> (32 - size) : 0;
            // Coefficients past the last one are refused, too. libjpeg drops them silently.
            if (symbol == 0 || (place > 63 && advance != kEndOfBlock))
              out->has_error = true;
            else if (p.index == 0)
              *out->dc = static_cast<int16_t>(Extend(magnitude, size));
            else if (size)
              out->Write(place, static_cast<int16_t>(Extend(magnitude, size)));
          }
          p.bit += length;
          p.index += advance;
        }
      }
      if (p.index >= 64) {
        // As in Skip: if there is no such code, or coefficients go past the last one, an MCU is guessed to begin here.
        p.period_block =
            (p.index > 64 && p.index < kEndOfBlock) || p.period_block + 1 == scan.period ? 0 : p.period_block + 1;
        p.index = 0;
        count++;
        if constexpr (Out::kWrites) out->NextBlock();
      }
      if (p.bit >= segment_end) {  // the next segment starts with a new state
        if constexpr (Out::kWrites) {
          if (out->block < out->limit) out->has_error = true;  // the segment ended early
          out->block = 0;
        }
        p.index = p.period_block = 0;
        count = 0;
        since_segment = kSinceSegment;
        if (++segment >= scan.segments) return {PackState(0, 0, 0), since_segment};
        segment_end = v.segment_end[segment];
        if (segment_end <= p.bit) {  // skips empty segments, of which there may be millions
          if constexpr (Out::kWrites) out->has_error = true;
          segment = FindSegment(v.segment_end, scan.segments, p.bit);
          if (segment >= scan.segments) return {PackState(0, 0, 0), since_segment};
          segment_end = v.segment_end[segment];
        }
        if constexpr (Out::kWrites) out->EnterSegment(segment);
        stays_in_segment = false;
      }
    }
  }
  return {exit(), count | since_segment};
}

// Decodes subsequence `number` of a scan from the state `entry`, where only the state counts, and fills `to`. Out:
// NoOutput or NoOutputAlone. Returns how many look-ups it took.
template <class Out>
JAXDALI_HD int32_t DecodeSubsequence(const ScanView& v, int32_t number, uint16_t entry, Decoding* to) {
  *to = {entry, entry, 0, 0, 0};
  int32_t lookups = 0;
  JAXDALI_UNROLL_BY(1)
  for (int part = 0; part < kWriteParts; part++) {
    to->middle = to->exit;
    to->middle_blocks = to->blocks;
    const PartEnd end = DecodePart(v, number * kWriteParts + part, to->exit, static_cast<Out*>(nullptr), &lookups);
    to->exit = end.exit;
    to->blocks = AddCounts{}(to->middle_blocks, end.blocks);
  }
  return lookups;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_SUBSEQUENCE_H_
