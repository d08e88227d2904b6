// Decodes the symbols of one subsequence of entropy-coded data from any state; see entropy.h.
#ifndef JAXDALI_FFI_JPEG_SUBSEQUENCE_H_
#define JAXDALI_FFI_JPEG_SUBSEQUENCE_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/common/words.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"

namespace jaxdali::jpeg {

// A scan as the threads of a block see it, in shared memory, where divergent reads are fast.
struct ScanView {
  ScanTable scan;
  Lookup lookup[kMaxTables];
  const uint32_t* words;
  const uint32_t* segment_end;
  uint32_t bits, subsequence_bits;

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
  static constexpr bool kWrites = false;
};

// An output that writes to the arrays of coefficients and DC values.
struct Output {
  static constexpr bool kWrites = true;
  const ScanTable* scan;
  const Component* component;  // of the image
  const uint8_t* order;        // where the coefficients of the zigzag order are in a block
  uint8_t* workspace;
  uint32_t block, limit;  // the block's number within the segment, and how many of its blocks the region needs
  bool bad;

  // Where the block is: its MCU, its place in it, and its DC value's.
  int32_t mcu_x, mcu_y, part;
  int16_t* dc;
  int16_t* coefficients;  // null: the region does not need the block

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
    if (++block >= limit) return;
    dc++;
    if (++part == scan->mcu_blocks) {
      part = 0;
      if (++mcu_x == scan->mcu_columns) mcu_x = 0, mcu_y++;
    }
    Locate();
  }

 private:
  JAXDALI_HD void Locate() {
    const McuBlock& b = scan->block[part];
    const Component& c = component[b.component];
    const bool alone = scan->components == 1;
    const int32_t x = mcu_x * (alone ? 1 : c.h) + b.dx - c.x0, y = mcu_y * (alone ? 1 : c.v) + b.dy - c.y0;
    const bool needed = x >= 0 && x < c.x1 - c.x0 && y >= 0 && y < c.y1 - c.y0;
    coefficients = needed ? reinterpret_cast<int16_t*>(workspace + c.coefficients * kPlaceUnit) +
                                (static_cast<int64_t>(y) * c.columns() + x) * 64
                          : nullptr;
  }
};

// Decodes the symbols that begin in a subsequence. `lookups`: how many look-ups it took.
template <class Out>
JAXDALI_HD Decoding DecodeSubsequence(const ScanView& v, int32_t number, uint16_t entry, Out* out, int32_t* lookups) {
  const ScanTable& scan = v.scan;
  const uint32_t start = static_cast<uint32_t>(number) * v.subsequence_bits, stop = start + v.subsequence_bits;
  const uint32_t end = stop < v.bits ? stop : v.bits;
  uint32_t at = start + (entry & 31), count = 0, since = 0;
  *lookups = 0;
  int index = entry >> 5 & 63, part = entry >> 11;  // coefficient in the block, block in the period
  if (part >= scan.period) part = 0;
  // Without a search at the beginning: the first segment may be empty.
  int32_t segment = scan.segments == 1 || number == 0 ? 0 : FindSegment(v.segment_end, scan.segments, at);
  if (segment >= scan.segments || at >= end) return {entry, PackState(at > stop ? at - stop : 0, index, part), 0};
  uint32_t segment_end = v.segment_end[segment];
  if constexpr (Out::kWrites) out->EnterSegment(segment);
  BitReader reader(v.words, v.bits);
  McuBlock now = scan.block[part];
  for (; at < end; ++*lookups) {
    bool idle = false, grouped = false;
    if constexpr (Out::kWrites) idle = out->block >= out->limit;
    const uint32_t window = idle ? 0 : reader.Peek(at);
    const Lookup& lookup = v.lookup[index ? now.ac : now.dc];
    if constexpr (!Out::kWrites) {
      const uint32_t group = lookup.group[window >> (32 - kLookupBits)], after = at + (group & 31);
      const int next = index + static_cast<int>(group >> 5 & 127);
      grouped = after <= (end < segment_end ? end : segment_end) && next < 64;
      if (grouped) {
        at = after;
        index = group & kEndsBlock ? 64 : next;
      }
    }
    if (idle) {
      at = segment_end;  // padding, or data that no block needs
    } else if (!grouped) {
      const uint32_t symbol = lookup.Read(window);
      const uint32_t length = symbol ? symbol & 31 : 1;
      const int advance = symbol ? static_cast<int>(symbol >> 9) : 65;
      if (at + length > segment_end) {
        at = segment_end;  // a symbol never straddles segments: this is padding
      } else {
        if constexpr (Out::kWrites) {
          const int size = static_cast<int>(symbol >> 5 & 15), place = index + advance - 1;
          const uint32_t magnitude = size ? (window << (length - size)) >> (32 - size) : 0;
          // Coefficients past the last one are refused, too. libjpeg drops them silently.
          if (symbol == 0 || (place > 63 && advance != kEndOfBlock))
            out->bad = true;
          else if (index == 0)
            *out->dc = static_cast<int16_t>(Extend(magnitude, size));
          else if (size && out->coefficients)
            out->coefficients[out->order[place]] = static_cast<int16_t>(Extend(magnitude, size));
        }
        at += length;
        index += advance;
      }
    }
    if (index >= 64) {
      // If there is no such code, or coefficients go past the last one, the guess was wrong. The next guess is that an
      // MCU begins here, which synchronises soonest.
      part = (index > 64 && index < kEndOfBlock) || part + 1 == scan.period ? 0 : part + 1;
      index = 0;
      now = scan.block[part];
      count++;
      if constexpr (Out::kWrites) out->NextBlock();
    }
    if (at >= segment_end) {  // the next segment starts with a new state
      if constexpr (Out::kWrites) {
        if (out->block < out->limit) out->bad = true;  // the segment ended early
        out->block = 0;
      }
      index = part = 0;
      count = 0;
      since = kSinceSegment;
      if (++segment >= scan.segments) return {entry, PackState(0, 0, 0), since};
      segment_end = v.segment_end[segment];
      if (segment_end <= at) {  // skips empty segments, of which there may be millions
        if constexpr (Out::kWrites) out->bad = true;
        segment = FindSegment(v.segment_end, scan.segments, at);
        if (segment >= scan.segments) return {entry, PackState(0, 0, 0), since};
        segment_end = v.segment_end[segment];
      }
      if constexpr (Out::kWrites) out->EnterSegment(segment);
      now = scan.block[0];
    }
  }
  return {entry, PackState(at > stop ? at - stop : 0, index, part), count | since};
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_SUBSEQUENCE_H_
