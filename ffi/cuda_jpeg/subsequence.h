// Decodes the symbols of one subsequence of entropy-coded data from any state; see entropy.h.
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

// A scan as the threads of a block see it, in shared memory, where divergent reads are fast.
struct ScanView {
  Lookup lookup[kMaxTables];
  // For each block of the period: its tables, as numbers of words from `lookup` on (DC: bits 0-12, AC: bits 13-25), and
  // the number of the next block.
  uint32_t tables[kMaxMcuBlocks];
  ScanTable scan;
  const uint32_t* words;
  const uint32_t* segment_end;
  uint32_t bits, subsequence_bits;

  JAXDALI_HD void SetTables(int part) {
    const McuBlock& b = scan.block[part];
    constexpr uint32_t kWords = sizeof(Lookup) / 4;
    static_assert(kMaxTables * kWords < 1 << 13);
    tables[part] =
        b.dc * kWords | b.ac * kWords << 13 | static_cast<uint32_t>(part + 1 < scan.period ? part + 1 : 0) << 26;
  }
  JAXDALI_HD static uint32_t DcOf(uint32_t tables_of_block) { return tables_of_block & 0x1FFF; }
  JAXDALI_HD static uint32_t AcOf(uint32_t tables_of_block) { return tables_of_block >> 13 & 0x1FFF; }
  JAXDALI_HD const Lookup& LookupAt(uint32_t table) const {
    return *reinterpret_cast<const Lookup*>(reinterpret_cast<const uint8_t*>(lookup) + table * 4);
  }
  // A Meaning as a word.
  JAXDALI_HD uint32_t MeaningAt(uint32_t table, uint32_t window) const {
    static_assert(offsetof(Lookup, meaning) == 0);
    const auto* at = reinterpret_cast<const uint8_t*>(lookup) + (table + (window >> (32 - kLookupBits))) * 4;
    uint32_t word;
    std::memcpy(&word, __builtin_assume_aligned(at, 4), 4);
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

// Reads two words of the data at a time. Words past the end are zeros.
class BitReader {
 public:
  JAXDALI_HD BitReader(const uint32_t* words, uint32_t bits)
      : words_(words), count_((bits + 31) >> 5), tail_(bits & 31), at_(0xFFFFFFF0u), first_(0), second_(0) {}

  JAXDALI_HD uint32_t Peek(uint32_t bit) {
    const uint32_t i = bit >> 5;
    if (i != at_) {
      first_ = i == at_ + 1 ? second_ : Load(i);
      second_ = Load(i + 1);
      at_ = i;
    }
    return FunnelLeft(first_, second_, bit & 31);
  }

 private:
  JAXDALI_HD uint32_t Load(uint32_t i) const {
    if (i >= count_) return 0;
    const uint32_t word = BigEndian(ReadWord(reinterpret_cast<const uint8_t*>(words_ + i)));
    return i == count_ - 1 && tail_ ? word & ~(0xFFFFFFFFu >> tail_) : word;  // bits beyond the tail were never written
  }

  const uint32_t* words_;
  uint32_t count_, tail_, at_, first_, second_;
};

// The same without checks, where kBitsAhead bits follow. It reads a word before a look-up needs it, so none waits: at
// the end a word after the data, which lies in the working memory and is not used.
inline constexpr uint32_t kBitsAhead = 96;
class BitStream {
 public:
  JAXDALI_HD BitStream(const uint32_t* words, uint32_t bit)
      : words_(reinterpret_cast<const uint8_t*>(words)),
        until_((bit | 31) + 1),
        first_(BigEndian(Read(-4))),
        second_(BigEndian(Read(0))),
        third_(Read(4)) {}

  // `bit` ascends by at most 31.
  JAXDALI_HD uint32_t Peek(uint32_t bit) {
    Follow(bit);
    return Window(bit);
  }

  // The two parts of Peek: the second one needs the first one only where `bit` has reached until().
  JAXDALI_HD void Follow(uint32_t bit) {
    if (bit < until_) return;
    until_ += 32;
    first_ = second_;
    second_ = BigEndian(third_);
    third_ = Read(4);
  }
  JAXDALI_HD uint32_t Window(uint32_t bit) const { return FunnelLeft(first_, second_, bit & 31); }
  JAXDALI_HD uint32_t until(uint32_t most) const { return until_ < most ? until_ : most; }

 private:
  // The word so many bytes after the end of the first one.
  JAXDALI_HD uint32_t Read(int bytes) const { return ReadWord(words_ + (until_ >> 3) + bytes); }

  const uint8_t* words_;
  uint32_t until_, first_, second_, third_;
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

// Where the blocks of one place in an MCU are, as the threads of a block of DecodeWrite share it.
struct alignas(16) BlockPlace {
  uint32_t coefficients;     // of the component, see Component
  int32_t columns, rows;     // blocks that the region needs
  int32_t step_x, step_y;    // blocks of the component in an MCU
  int32_t first_x, first_y;  // the first MCU's block, counted from the region's first
  int32_t unused;

  JAXDALI_HD static BlockPlace Of(const ScanTable& scan, const Component& c, const McuBlock& b) {
    const bool alone = scan.components == 1;
    return {c.coefficients, c.columns(), c.y1 - c.y0, alone ? 1 : c.h, alone ? 1 : c.v, b.dx - c.x0, b.dy - c.y0, 0};
  }
};

// An output that writes to the arrays of coefficients and DC values. The coefficients are zero before.
struct Output {
  static constexpr bool kWrites = true;
  const ScanTable* scan;
  const BlockPlace* places;  // of the scan
  uint8_t* workspace;
  uint32_t block, limit;  // the block's number within the segment, and how many of its blocks the region needs
  bool bad;

  // Where the block is: its MCU, its place in it, and its DC value's.
  int32_t mcu_x, mcu_y, part;
  int16_t* dc;
  uint32_t coefficients;  // place in the working memory; 0: the region does not need the block

  JAXDALI_HD void EnterSegment(int32_t segment) {
    const int32_t first = segment * scan->restart_interval, left = scan->needed_mcus - first;
    const int32_t mcus = left < scan->restart_interval ? left : scan->restart_interval;
    limit = mcus > 0 ? static_cast<uint32_t>(mcus * scan->mcu_blocks) : 0;
    if (block >= limit) return;
    const int32_t mcu = first + static_cast<int32_t>(block) / scan->mcu_blocks;
    part = static_cast<int32_t>(block) % scan->mcu_blocks;
    mcu_x = mcu % scan->mcu_columns;
    mcu_y = mcu / scan->mcu_columns;
    dc = reinterpret_cast<int16_t*>(workspace + scan->dc * kPlaceUnit) + int64_t{first} * scan->mcu_blocks + block;
    Locate();
  }

  JAXDALI_HD void NextBlock() {
    block++;  // past the last one what follows is not used
    dc++;
    if (++part == scan->mcu_blocks) {
      part = 0;
      if (++mcu_x == scan->mcu_columns) mcu_x = 0, mcu_y++;
    }
    Locate();
  }

  JAXDALI_HD void Write(int index, int16_t value) const {
    if (value && coefficients) At(coefficients)[index] = value;
  }
  JAXDALI_HD int16_t* At(uint32_t place) const {
    return reinterpret_cast<int16_t*>(workspace + static_cast<int64_t>(place) * kPlaceUnit);
  }

 private:
  JAXDALI_HD void Locate() {
    const BlockPlace& p = places[part];
    const int32_t x = mcu_x * p.step_x + p.first_x, y = mcu_y * p.step_y + p.first_y;
    static_assert(64 * sizeof(int16_t) == 2 * kPlaceUnit);
    const uint32_t place = p.coefficients + 2 * static_cast<uint32_t>(y * p.columns + x);
    const bool needed = static_cast<uint32_t>(x) < static_cast<uint32_t>(p.columns) &&
                        static_cast<uint32_t>(y) < static_cast<uint32_t>(p.rows);
    coefficients = needed ? place : 0;
  }
};

// How far decoding has come.
struct Position {
  uint32_t at;      // bit
  int index, part;  // coefficient in the block, block in the period
};

// Symbols that begin before this bit end before the segment does, and kBitsAhead bits follow the beginning.
JAXDALI_HD inline uint32_t UncheckedEnd(uint32_t segment_end, uint32_t bits, uint32_t end) {
  auto before = [](uint32_t bit, uint32_t n) { return bit > n ? bit - n : 0; };
  const uint32_t a = before(segment_end, kMaxSymbolBits), b = before(bits, kBitsAhead - 1), c = a < b ? a : b;
  return c < end ? c : end;
}

// Decodes symbols that begin before `until`, which is an UncheckedEnd. Only the state counts, so a look-up gives all
// symbols of a group. Returns the number of look-ups.
//
// Threads of a warp are at different places of their blocks. So there are few branches, and a few instructions in each.
// kAlone: the thread has few others in its warp, or none. Then the time is that of instructions one after the other,
// and each branch that is not taken saves some.
template <bool kAlone>
JAXDALI_HD inline int32_t Skip(const ScanView& v, uint32_t until, Position* position, uint32_t* count) {
  int32_t lookups = 0;
  uint32_t at = position->at, part = static_cast<uint32_t>(position->part), blocks = 0;
  uint32_t twice = static_cast<uint32_t>(position->index) * 2;  // the index
  uint32_t tables = v.tables[part], ac = v.AcOf(tables), table = twice ? ac : v.DcOf(tables);
  BitStream stream(v.words, at);
  // The codes of a group, though not the magnitude of the last one, lie within kLookupBits bits.
  const uint32_t groups_until = until > kLookupBits - 1 ? until - (kLookupBits - 1) : 0;
  auto read_symbol = [&](uint32_t meaning, uint32_t table, uint32_t window) {
    uint32_t symbol = meaning & 0xFFFF;
    if (symbol == 0) symbol = v.LookupAt(table).ReadLong(window >> 16);
    if (symbol == 0) symbol = kNoCode;
    at += symbol & 31;
    twice += (symbol >> 9) * 2;
    // If there is no such code, or coefficients go past the last one, the guess was wrong. The next guess is that an
    // MCU begins here, which synchronises soonest.
    if (twice > 2 * 64 && twice < 2 * kEndOfBlock) tables &= (1 << 26) - 1;
    if (twice > 2 * 64) twice = 2 * 64;
  };
  auto end_block = [&] {
    twice = 0;
    part = tables >> 26;
    tables = v.tables[part];
    table = v.DcOf(tables);
    ac = v.AcOf(tables);
    blocks++;
  };
  // A group's index is odd if the last symbol ends the block, and more than 2 * 64 if they are not all in this block.
  if constexpr (kAlone) {
    // Most look-ups end neither the block nor the word of the data, and only one branch is for what is rare.
    for (uint32_t stop = stream.until(groups_until); at < groups_until;) {
      const uint32_t window = stream.Window(at), meaning = v.MeaningAt(table, window), before = table;
      const uint32_t length = Permute(meaning, 0, 0x4442);
      lookups++;
      at += length;
      twice += meaning >> 24;
      table = ac;
      if ((twice & ~126u) == 0 && at < stop) continue;
      if (twice > 2 * 64) {
        at -= length;
        twice -= meaning >> 24;
        read_symbol(meaning, before, window);
      }
      if (twice & (2 * 64 | 1)) end_block();
      stream.Follow(at);
      stop = stream.until(groups_until);
    }
  } else {
    for (; at < groups_until; lookups++) {
      stream.Follow(at);
      const uint32_t window = stream.Window(at), meaning = v.MeaningAt(table, window), before = table;
      const uint32_t next = twice + (meaning >> 24);
      table = ac;
      if (next > 2 * 64) {
        read_symbol(meaning, before, window);
      } else {
        at += Permute(meaning, 0, 0x4442);
        twice = next;
      }
      if (twice & (2 * 64 | 1)) end_block();
    }
  }
  for (; at < until; lookups++) {
    stream.Follow(at);
    const uint32_t window = stream.Window(at), before = table;
    table = ac;
    read_symbol(v.MeaningAt(before, window), before, window);
    if (twice == 2 * 64) end_block();
  }
  *position = {at, static_cast<int>(twice / 2), static_cast<int>(part)};
  *count += blocks;
  return lookups;
}

// Decodes symbols that begin before `until`, which is an UncheckedEnd, and writes them, four coefficients at a time. It
// stops before what is not allowed, and where the region needs no more blocks.
JAXDALI_HD inline void Write(const ScanView& v, uint32_t until, Position* position, Output* out) {
  uint32_t at = position->at, part = static_cast<uint32_t>(position->part);
  uint32_t index = static_cast<uint32_t>(position->index);
  uint32_t tables = v.tables[part];
  // Four coefficients that are still to be written, in which block, and their number, which ascends.
  uint64_t values = 0;
  uint32_t block = 0, four = ~0u, block_fours = 0;
  const uint32_t shared = index % 4 ? index / 4 : ~0u;  // the thread before has decoded some of these four
  auto write = [&](bool is_shared) {
    if (block == 0) return;
    int16_t* to = out->At(block) + four % 16 * 4;
    if (!is_shared)
      Store2(to, {static_cast<uint32_t>(values), static_cast<uint32_t>(values >> 32)});
    else
      for (int i = 0; i < 4; i++)
        if (const auto value = static_cast<int16_t>(values >> 16 * i)) to[i] = value;
  };
  BitStream stream(v.words, at);
  while (at < until && out->block < out->limit) {
    const uint32_t window = stream.Peek(at);
    const uint32_t symbol = v.LookupAt(index ? v.AcOf(tables) : v.DcOf(tables)).Read(window);
    const int length = static_cast<int>(symbol & 31), size = static_cast<int>(symbol >> 5 & 15);
    const uint32_t advance = symbol >> 9, next = index + advance;
    if (symbol == 0 || (next > 64 && advance != kEndOfBlock)) break;
    const uint32_t magnitude = window << (length - size);
    // A magnitude without its highest bit stands for a negative value. Without any bits the value is 0.
    const uint32_t below = magnitude >> 31 ? 0 : (~0u << size) + 1;
    const auto value = static_cast<uint16_t>((magnitude >> 1 >> (31 - size)) + below);
    if (index == 0) {
      *out->dc = static_cast<int16_t>(value);
    } else if (size) {
      const uint32_t place = next - 1, its_four = block_fours + place / 4;
      if (its_four != four) {
        write(four == shared);
        values = 0;
        four = its_four;
        block = out->coefficients;
      }
      values |= static_cast<uint64_t>(value) << (place % 4 * 16);
    }
    at += static_cast<uint32_t>(length);
    index = next;
    if (next >= 64) {
      index = 0;
      block_fours += 16;
      part = tables >> 26;
      tables = v.tables[part];
      out->NextBlock();
    }
  }
  // The next thread may decode the rest of the four.
  write(true);
  *position = {at, static_cast<int>(index), static_cast<int>(part)};
}

// What a decoding of a part of a subsequence finds out.
struct PartEnd {
  uint16_t exit;
  uint32_t blocks;
};

// Decodes the symbols that begin in a part of a subsequence. `number`: the part's in the scan. `lookups`: it adds how
// many look-ups it took.
template <class Out>
JAXDALI_HD PartEnd DecodePart(const ScanView& v, int32_t number, uint16_t entry, Out* out, int32_t* lookups) {
  const ScanTable& scan = v.scan;
  const uint32_t bits = v.subsequence_bits / kWriteParts;
  const uint32_t start = static_cast<uint32_t>(number) * bits, stop = start + bits;
  const uint32_t end = stop < v.bits ? stop : v.bits;
  Position p{start + (entry & 31), entry >> 5 & 63, entry >> 11};
  uint32_t count = 0, since = 0;
  if (p.part >= scan.period) p.part = 0;
  auto exit = [&] { return PackState(p.at > stop ? p.at - stop : 0, p.index, p.part); };
  // Without a search at the beginning: the first segment may be empty.
  int32_t segment = scan.segments == 1 || number == 0 ? 0 : FindSegment(v.segment_end, scan.segments, p.at);
  if (segment >= scan.segments || p.at >= end) return {exit(), 0};
  uint32_t segment_end = v.segment_end[segment];
  if constexpr (Out::kWrites) out->EnterSegment(segment);
  while (p.at < end) {
    const uint32_t until = UncheckedEnd(segment_end, v.bits, end);
    if constexpr (Out::kWrites) {
      if (p.at < until) Write(v, until, &p, out);
    } else if (p.at < until) {
      *lookups += Skip<Out::kAlone>(v, until, &p, &count);
    }
    // The rest of the segment, symbol by symbol, with all checks.
    BitReader reader(v.words, v.bits);
    for (bool stays = true; stays && p.at < end; ++*lookups) {
      bool idle = false;
      if constexpr (Out::kWrites) idle = out->block >= out->limit;
      const uint32_t window = idle ? 0 : reader.Peek(p.at);
      const McuBlock& now = scan.block[p.part];
      const Lookup& lookup = v.lookup[p.index ? now.ac : now.dc];
      if (idle) {
        p.at = segment_end;  // padding, or data that no block needs
      } else {
        const uint32_t symbol = lookup.Read(window);
        const uint32_t length = symbol ? symbol & 31 : 1;
        const int advance = symbol ? static_cast<int>(symbol >> 9) : 65;
        if (p.at + length > segment_end) {
          p.at = segment_end;  // a symbol never straddles segments: this is padding
        } else {
          if constexpr (Out::kWrites) {
            const int size = static_cast<int>(symbol >> 5 & 15), place = p.index + advance - 1;
            const uint32_t magnitude = size ? (window << (length - size)) >> (32 - size) : 0;
            // Coefficients past the last one are refused, too. libjpeg drops them silently.
            if (symbol == 0 || (place > 63 && advance != kEndOfBlock))
              out->bad = true;
            else if (p.index == 0)
              *out->dc = static_cast<int16_t>(Extend(magnitude, size));
            else if (size)
              out->Write(place, static_cast<int16_t>(Extend(magnitude, size)));
          }
          p.at += length;
          p.index += advance;
        }
      }
      if (p.index >= 64) {
        p.part = (p.index > 64 && p.index < kEndOfBlock) || p.part + 1 == scan.period ? 0 : p.part + 1;
        p.index = 0;
        count++;
        if constexpr (Out::kWrites) out->NextBlock();
      }
      if (p.at >= segment_end) {  // the next segment starts with a new state
        if constexpr (Out::kWrites) {
          if (out->block < out->limit) out->bad = true;  // the segment ended early
          out->block = 0;
        }
        p.index = p.part = 0;
        count = 0;
        since = kSinceSegment;
        if (++segment >= scan.segments) return {PackState(0, 0, 0), since};
        segment_end = v.segment_end[segment];
        if (segment_end <= p.at) {  // skips empty segments, of which there may be millions
          if constexpr (Out::kWrites) out->bad = true;
          segment = FindSegment(v.segment_end, scan.segments, p.at);
          if (segment >= scan.segments) return {PackState(0, 0, 0), since};
          segment_end = v.segment_end[segment];
        }
        if constexpr (Out::kWrites) out->EnterSegment(segment);
        stays = false;
      }
    }
  }
  return {exit(), count | since};
}

// Decodes a subsequence where only the state counts. Returns how many look-ups it took.
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
